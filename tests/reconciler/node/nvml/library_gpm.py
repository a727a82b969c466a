"""NVML's functions on what GPUs do: rates, and counters of GPUs that have GPM. A second passes between two samples of a card."""

# ruff: noqa: N802  (functions are named as NVML names them)
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pynvml

from tests.reconciler.node.nvml.card import Card, RefusalError
from tests.reconciler.node.nvml.library import Library, function, put


@dataclass(eq=False)
class Sample:
    """What counters were; of no card yet."""

    card: Card | None = None
    counters: dict[int, float] = field(default_factory=dict)
    at: int = 0


@function
def nvmlDeviceGetUtilizationRates(library: Library, device: Any, found: Any) -> None:
    card = library.card(device)
    if card.rates is None or card.enabled:
        raise RefusalError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    found._obj.gpu, found._obj.memory = card.rates


@function
def nvmlGpmQueryDeviceSupport(library: Library, device: Any, found: Any) -> None:
    if found._obj.version != pynvml.NVML_GPM_SUPPORT_VERSION:
        raise RefusalError(pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
    found._obj.isSupportedDevice = int(_has_gpm(library.card(device)))


@function
def nvmlGpmSampleAlloc(library: Library, found: Any) -> None:
    put(found, library.handle(Sample()))


@function
def nvmlGpmSampleFree(library: Library, sample: Any) -> None:
    library.forget(sample)


@function
def nvmlGpmSampleGet(library: Library, device: Any, sample: Any) -> None:
    card = library.card(device)
    if not _has_gpm(card):
        raise RefusalError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    card.samples += 1
    for metric, value in card.busy.items():
        card.counters[metric] = card.counters.get(metric, 0) + value
    taken: Sample = library.behind(sample)
    taken.card, taken.counters, taken.at = card, dict(card.counters), card.samples


@function
def nvmlGpmMetricsGet(library: Library, asked: Any) -> None:
    wanted = asked._obj
    if wanted.version != pynvml.NVML_GPM_METRICS_GET_VERSION:
        raise RefusalError(pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
    first, second = library.behind(wanted.sample1), library.behind(wanted.sample2)
    if first.card is None or first.card is not second.card or first.at >= second.at:
        raise RefusalError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    for one in wanted.metrics[: wanted.numMetrics]:
        is_mute = one.metricId in first.card.mute
        one.nvmlReturn = pynvml.NVML_ERROR_NOT_SUPPORTED if is_mute else pynvml.NVML_SUCCESS
        grown = second.counters.get(one.metricId, 0) - first.counters.get(one.metricId, 0)
        one.value = 0.0 if is_mute else grown / (second.at - first.at)


def _has_gpm(card: Card) -> bool:
    return card.architecture == "hopper" and card.model_name != ""
