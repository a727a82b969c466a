"""What a pass changed of the map: the GPUs that are otherwise than before, and the jobs that hold them, by name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple

from reconciler.web.cluster_map import ClusterMap, MapJobs, Runs
from solver.model.document import Document
from solver.model.quantities import Instant

GPUS_MAX: Final = 5_000
"""More than so many changed GPUs are not told one by one: the whole map, packed, is not much longer."""

_SAME: Final = (
    "blocks", "racks", "rack_block", "types", "queues", "parents", "priority_classes", "nodes", "node_rack", "node_type",
    "node_gpus",
)  # fmt: skip


class MapChange(Document, frozen=True, omit_defaults=False):
    """From the map with one tag to that with another.

    `jobs`: those that hold something anew or otherwise, and all that hold one of the GPUs; `gone`: those that hold nothing any
    more. `gpu`: what is otherwise than before, and beside it `state`, `kept` and `held` as in the map, but that `held` and
    `parts` number the jobs here.
    """

    before: str
    after: str
    time: Instant
    jobs: MapJobs
    gone: tuple[str, ...]
    gpu: tuple[int, ...]
    state: tuple[int, ...]
    kept: tuple[int, ...]
    held: tuple[int, ...]
    parts: tuple[int, ...]


class _JobLine(NamedTuple):
    queue: int
    priority_class: int
    user: str
    since: str
    until: str
    leaves: bool


class _Gpu(NamedTuple):
    state: int
    kept: int
    held: str | int
    parts: tuple[tuple[int, int, str], ...]


def map_change(before: ClusterMap, after: ClusterMap, tags: tuple[str, str]) -> MapChange | None:
    """None: too much is otherwise, or the cluster itself; the map has to be sent whole."""
    if any(getattr(before, column) != getattr(after, column) for column in _SAME):
        return None
    old, new = list(_gpus(before)), list(_gpus(after))
    changed = [gpu for gpu, (was, now) in enumerate(zip(old, new, strict=True)) if was != now]
    if len(changed) > GPUS_MAX:
        return None
    lines_before, lines = _lines(before.jobs), _lines(after.jobs)
    holders = {name for gpu in changed for name in _holders(new[gpu])}
    told = [name for name, line in lines.items() if name in holders or lines_before.get(name) != line]
    number = {name: at for at, name in enumerate(told)}
    return MapChange(
        before=tags[0],
        after=tags[1],
        time=after.time,
        jobs=_columns(told, lines),
        gone=tuple(name for name in lines_before if name not in lines),
        gpu=tuple(changed),
        state=tuple(new[gpu].state for gpu in changed),
        kept=tuple(new[gpu].kept for gpu in changed),
        held=tuple(held if isinstance(held := new[gpu].held, int) else number[held] for gpu in changed),
        parts=tuple(
            value
            for gpu in changed
            for start, size, name in new[gpu].parts
            for value in (gpu, start, size, number[name])
        ),
    )


def _gpus(columns: ClusterMap) -> Iterator[_Gpu]:
    """Each GPU with its holders by name: numbers of jobs are others in each map."""
    names, parts = columns.jobs.name, defaultdict[int, list[tuple[int, int, str]]](list)
    flat = iter(columns.parts)
    for gpu, start, size, job in zip(flat, flat, flat, flat, strict=True):
        parts[gpu].append((start, size, names[job]))
    all_columns = zip(_unrolled(columns.state), _unrolled(columns.kept), _unrolled(columns.held), strict=True)
    for gpu, (state, kept, held) in enumerate(all_columns):
        yield _Gpu(state, kept, names[held] if held >= 0 else held, tuple(parts[gpu]) if gpu in parts else ())


def _unrolled(runs: Runs) -> Iterator[int]:
    for value, number in zip(runs[::2], runs[1::2], strict=True):
        yield from [value] * number


def _holders(gpu: _Gpu) -> Iterator[str]:
    if isinstance(gpu.held, str):
        yield gpu.held
    yield from (name for _, _, name in gpu.parts)


def _lines(jobs: MapJobs) -> dict[str, _JobLine]:
    leaving = set(jobs.leaving)
    columns = zip(jobs.name, jobs.queue, jobs.priority_class, jobs.user, jobs.since, jobs.until, strict=True)
    return {
        name: _JobLine(queue, priority_class, user, since, until, number in leaving)
        for number, (name, queue, priority_class, user, since, until) in enumerate(columns)
    }


def _columns(names: list[str], lines: dict[str, _JobLine]) -> MapJobs:
    told = [lines[name] for name in names]
    return MapJobs(
        name=tuple(names),
        queue=tuple(line.queue for line in told),
        priority_class=tuple(line.priority_class for line in told),
        user=tuple(line.user for line in told),
        since=tuple(line.since for line in told),
        until=tuple(line.until for line in told),
        leaving=tuple(number for number, line in enumerate(told) if line.leaves),
    )
