"""What GPUs do is read by GPM where they have it, else by rates; what is not measured is left out, and is not 0."""

from __future__ import annotations

from pathlib import Path

import pynvml
import pytest

from reconciler.node.nvml.driver import DriverError, GpuActivity, GpuLostError, GpuUuid
from reconciler.node.nvml.gpus import NvmlGpus
from reconciler.node.nvml.library import usage as library_usage
from reconciler.node.nvml.library.nvml import NvmlDriver
from reconciler.node.nvml.usage import NvmlUse
from reconciler.node.use.minutes import GpuSample
from tests.reconciler.node.nvml.conftest import Install
from tests.reconciler.node.nvml.library import Library
from tests.reconciler.node.nvml.made import card_of, workstation
from tests.reconciler.node.nvml.test_gpus import node_of

BUSY = {
    pynvml.NVML_GPM_METRIC_SM_UTIL: 80.0,
    pynvml.NVML_GPM_METRIC_SM_OCCUPANCY: 40.0,
    pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL: 30.0,
    pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL: 20.0,
    pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC: 1_000.0,
    pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC: 500.0,
}


@pytest.fixture
def library(install: Install) -> Library:
    return install(Library([card_of("H100-80GB", 0), card_of("A100-80GB", 1), workstation(2)]))


@pytest.fixture(autouse=True)
def samples_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cards that are made up have counters that are always fresh."""
    monkeypatch.setattr(library_usage, "APART_MIN_S", 0.0)


def uuid(library: Library, number: int) -> GpuUuid:
    return GpuUuid(library.cards[number].uuid)


def test_a_pair_of_samples_says_what_was_between_them(library: Library, driver: NvmlDriver) -> None:
    card, gpu = library.cards[0], uuid(library, 0)
    card.busy = dict.fromkeys(BUSY, 99.0)
    assert driver.usage(gpu) is None
    card.busy, card.used = dict(BUSY), card.total // 4
    assert driver.usage(gpu) == GpuActivity("gpm", 80.0, 40.0, 30.0, 20.0, 1_500.0, 25.0)
    card.busy = dict.fromkeys(BUSY, 0.0)
    assert driver.usage(gpu) == GpuActivity("gpm", 0.0, 0.0, 0.0, 0.0, 0.0, 25.0)


def test_a_metric_with_an_error_of_its_own_is_left_out(library: Library, driver: NvmlDriver) -> None:
    card, gpu = library.cards[0], uuid(library, 0)
    card.busy = dict(BUSY)
    card.mute = {pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL, pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC}
    driver.usage(gpu)
    found = driver.usage(gpu)
    assert found is not None
    assert (found.active, found.tensor, found.nvlink) == (80.0, None, None)


def test_without_gpm_rates_count_and_say_so(library: Library, driver: NvmlDriver) -> None:
    library.cards[1].rates = (100, 7)
    found = driver.usage(uuid(library, 1))
    assert found is not None
    assert (found.source, found.active, found.dram, found.occupancy, found.nvlink) == (
        "utilisation",
        100.0,
        7.0,
        None,
        None,
    )


def test_with_neither_nothing_is_known(library: Library, driver: NvmlDriver) -> None:
    library.cards[2].rates = None
    assert driver.usage(uuid(library, 2)) is None


def test_a_driver_that_is_older_than_gpm_has_rates(library: Library, driver: NvmlDriver) -> None:
    library.missing |= {"nvmlGpmQueryDeviceSupport"}
    found = driver.usage(uuid(library, 0))
    assert found is not None
    assert found.source == "utilisation"


def test_of_a_partitioned_gpu_nothing_is_known_and_no_pair_spans_the_change(
    library: Library, driver: NvmlDriver
) -> None:
    card, gpu = library.cards[0], uuid(library, 0)
    card.busy = dict(BUSY)
    driver.usage(gpu)
    card.enabled = True
    assert driver.usage(gpu) is None
    card.enabled = False
    assert driver.usage(gpu) is None
    assert driver.usage(gpu) is not None


def test_no_pair_spans_a_loss_of_the_gpu(library: Library, driver: NvmlDriver) -> None:
    card, gpu = library.cards[0], uuid(library, 0)
    driver.usage(gpu)
    card.lost = True
    with pytest.raises(GpuLostError):
        driver.usage(gpu)
    card.lost = False
    assert driver.usage(gpu) is None


def test_no_pair_spans_a_long_gap(library: Library, driver: NvmlDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, now_s = uuid(library, 0), [100.0]
    monkeypatch.setattr(library_usage, "monotonic", lambda: now_s[0])
    driver.usage(gpu)
    now_s[0] += library_usage.APART_MAX_S + 1
    assert driver.usage(gpu) is None
    now_s[0] += 5
    assert driver.usage(gpu) is not None


def test_counters_that_were_not_refreshed_yet_are_not_asked(
    library: Library, driver: NvmlDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library_usage, "APART_MIN_S", 1_000.0)
    gpu = uuid(library, 0)
    assert driver.usage(gpu) is None
    assert driver.usage(gpu) is None
    assert library.cards[0].samples == 1


def test_the_gpus_of_a_node_are_sampled_by_their_numbers_and_one_that_fails_is_left_out(
    library: Library, driver: NvmlDriver, tmp_path: Path
) -> None:
    node = node_of(4)
    use = NvmlUse(NvmlGpus(tmp_path / "gpus", driver), driver, lambda: [node])
    library.cards[1].rates, library.cards[2].rates = (50, 5), (0, 0)
    assert [sample.gpu for sample in use.read()] == [node.gpus[1].id, node.gpus[2].id]
    library.cards[1].lost = True
    library.cards[0].busy = dict(BUSY)
    first, second = use.read()
    assert (first.gpu, first.uuid, first.source, first.values["active"]) == (
        node.gpus[0].id,
        uuid(library, 0),
        "gpm",
        80.0,
    )
    share = 100 * library.cards[2].used / library.cards[2].total
    assert second == GpuSample(
        node.gpus[2].id, uuid(library, 2), "utilisation", {"active": 0.0, "dram": 0.0, "memory": share}
    )


def test_what_has_counters_and_may_not_read_them_has_rates(
    library: Library, driver: NvmlDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    monkeypatch.setattr(pynvml, "nvmlGpmSampleGet", refuse)
    library.cards[0].rates = (30, 3)
    for _ in range(2):
        found = driver.usage(uuid(library, 0))
        assert found is not None
        assert (found.source, found.active) == ("utilisation", 30.0)


def test_why_a_gpu_can_not_be_asked_is_told_once_until_it_can(
    library: Library, driver: NvmlDriver, tmp_path: Path
) -> None:
    node, why = node_of(2), list[str]()
    use = NvmlUse(NvmlGpus(tmp_path / "gpus", driver), driver, lambda: [node], why.append)
    list(use.read())
    for lost in (True, True, False, True):
        library.cards[1].lost = lost
        list(use.read())
    assert len(why) == 2
    assert all(uuid(library, 1) in told for told in why)


def test_an_error_of_the_counters_is_an_error_of_that_gpu(library: Library, driver: NvmlDriver) -> None:
    library.missing |= {"nvmlGpmMetricsGet"}
    gpu = uuid(library, 0)
    driver.usage(gpu)
    with pytest.raises(DriverError):
        driver.usage(gpu)
