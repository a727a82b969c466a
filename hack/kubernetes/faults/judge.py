"""What has to be so some rounds after everything is honest again: no gang in part, none forgotten. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from hack.kubernetes.faults.world import GPUS_PER_NODE, Gang


class Standing(NamedTuple):
    """A pod of a gang that is wanted. `node` is "" while it waits; `runs`: there, and not asked to leave."""

    gang: str
    node: str
    devices: tuple[str, ...]
    runs: bool


class Problem(NamedTuple):
    """`kind`: partial or lost."""

    kind: str
    what: str


def problems_of(
    gangs: Collection[Gang], pods: Collection[Standing], nodes: Iterable[str], verdicts: Mapping[str, str]
) -> tuple[Problem, ...]:
    """What is not as it has to be. `verdicts`: by name of a gang, what the last round said."""
    free = _free(pods, nodes)
    return tuple(problem for gang in gangs for problem in _of(gang, pods, free, verdicts.get(gang.name, "none")))


def _of(gang: Gang, pods: Collection[Standing], free: Mapping[str, int], verdict: str) -> Iterator[Problem]:
    mine = [pod for pod in pods if pod.gang == gang.name]
    placed = sum(bool(pod.node) for pod in mine)
    running = sum(pod.runs and bool(pod.node) for pod in mine)
    if running == gang.size == len(mine):
        return
    if placed:
        yield Problem("partial", f"{gang.name}: {running} of {gang.size} pods run, {placed} have a node")
    elif len(mine) != gang.size:
        yield Problem("lost", f"{gang.name}: {len(mine)} of {gang.size} pods are there")
    elif _fits(gang, free):
        yield Problem("lost", f"{gang.name}: waits, its verdict is {verdict}, and it fits into {dict(free)}")
    elif verdict not in ("waits", "inadmissible"):
        yield Problem("lost", f"{gang.name}: waits, and its verdict is {verdict}")


def _free(pods: Iterable[Standing], nodes: Iterable[str]) -> dict[str, int]:
    """GPUs of each node that nobody has any part of."""
    used: dict[str, set[str]] = {}
    for pod in pods:
        used.setdefault(pod.node, set()).update(pod.devices)
    return {node: GPUS_PER_NODE - len(used.get(node, ())) for node in sorted(nodes)}


def _fits(gang: Gang, free: Mapping[str, int]) -> bool:
    """Its pods are alike, so that each node can be filled by itself. Parts of GPUs that others share are not counted on."""
    each = gang.gpus or 1
    return sum(left // each for left in free.values()) >= gang.size
