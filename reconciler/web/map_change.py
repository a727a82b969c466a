"""What a pass changed of the map: the GPUs that are otherwise than before, and the jobs that hold them, by name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Self

from reconciler.web.cluster_map import FREE, PART, ClusterMap, MapJobs, Runs
from solver.model.document import Document
from solver.model.quantities import Instant

GPUS_MAX: Final = 5_000
"""More than so many changed GPUs are not told one by one: the whole map, packed, is not much longer."""

_SAME: Final = (
    "blocks", "racks", "rack_block", "islands", "types", "profiles", "purposes", "queues", "parents", "priority_classes",
    "nodes", "node_rack", "node_island", "node_type", "node_gpus",
)  # fmt: skip


class MapChange(Document, frozen=True, omit_defaults=False):
    """From the map with one tag to that with another.

    `jobs`: those that hold something anew or otherwise, and all that hold or are kept one of the GPUs; `gone`: those that hold
    nothing any more, and are kept nothing. `gpu`: what is otherwise than before, and beside it the columns of the map, but that
    `keeper`, `held` and `parts` number the jobs here.
    """

    before: str
    after: str
    time: Instant
    jobs: MapJobs
    gone: tuple[str, ...]
    gpu: tuple[int, ...]
    state: tuple[int, ...]
    kept: tuple[int, ...]
    keeper: tuple[int, ...]
    leaves: tuple[int, ...]
    held: tuple[int, ...]
    parts: tuple[int, ...]


class _JobLine(NamedTuple):
    queue: int
    priority_class: int
    user: str
    since: str
    until: str
    place: str
    waits: bool


Holder = str | int
"""A job by its name, since numbers of jobs are others in each map; or FREE, or IN_PARTS."""

_Part = tuple[int, int, Holder, int, int]


class _Gpus(NamedTuple):
    """Columns with a value for each GPU; `parts`, of those that are divided."""

    state: list[int]
    kept: list[int]
    keeper: list[Holder]
    leaves: list[int]
    held: list[Holder]
    parts: Mapping[int, Sequence[_Part]]

    @classmethod
    def of(cls, columns: ClusterMap) -> Self:
        names, parts = columns.jobs.name, defaultdict[int, list[_Part]](list)
        every_part = zip(*(columns.parts[at::PART] for at in range(PART)), strict=True)
        for gpu, start, size, job, profile, leaves in every_part:
            parts[gpu].append((start, size, names[job] if job >= 0 else job, profile, leaves))
        keeper, held = (
            [names[job] if job >= 0 else job for job in _unrolled(of)] for of in (columns.keeper, columns.held)
        )
        return cls(_unrolled(columns.state), _unrolled(columns.kept), keeper, _unrolled(columns.leaves), held, parts)

    def changed(self, now: Self) -> list[int]:
        """GPUs that are otherwise now."""
        # One that is divided on one side alone differs in `held`.
        found = {gpu for gpu in self.parts.keys() & now.parts.keys() if self.parts[gpu] != now.parts[gpu]}
        for one, other in zip(self._whole(), now._whole(), strict=True):
            # Most columns are alike, which is found out at once.
            if one != other:
                found.update(gpu for gpu, (was, known) in enumerate(zip(one, other, strict=True)) if was != known)
        return sorted(found)

    def _whole(self) -> tuple[Sequence[Holder], ...]:
        return self.state, self.kept, self.keeper, self.leaves, self.held

    def names(self, gpu: int) -> Iterator[str]:
        """The jobs that hold it or a part of it, or that it is kept for."""
        holders = (self.held[gpu], self.keeper[gpu], *(holder for _, _, holder, *_ in self.parts.get(gpu, ())))
        yield from (name for name in holders if isinstance(name, str))


def map_change(before: ClusterMap, after: ClusterMap, tags: tuple[str, str]) -> MapChange | None:
    """None: too much is otherwise, or the cluster itself; the map has to be sent whole."""
    if any(getattr(before, column) != getattr(after, column) for column in _SAME):
        return None
    now = _Gpus.of(after)
    changed = _Gpus.of(before).changed(now)
    if len(changed) > GPUS_MAX:
        return None
    lines_before, lines = _lines(before.jobs), _lines(after.jobs)
    concerned = {name for gpu in changed for name in now.names(gpu)}
    told = [name for name, line in lines.items() if name in concerned or lines_before.get(name) != line]
    number: dict[Holder, int] = {name: at for at, name in enumerate(told)}
    return MapChange(
        before=tags[0],
        after=tags[1],
        time=after.time,
        jobs=_columns(told, lines),
        gone=tuple(name for name in lines_before if name not in lines),
        gpu=tuple(changed),
        state=tuple(now.state[gpu] for gpu in changed),
        kept=tuple(now.kept[gpu] for gpu in changed),
        keeper=tuple(number.get(now.keeper[gpu], FREE) for gpu in changed),
        leaves=tuple(now.leaves[gpu] for gpu in changed),
        held=tuple(held if isinstance(held := now.held[gpu], int) else number[held] for gpu in changed),
        parts=tuple(
            value
            for gpu in changed
            for start, size, holder, profile, leaves in now.parts.get(gpu, ())
            for value in (gpu, start, size, number.get(holder, FREE), profile, leaves)
        ),
    )


def _unrolled(runs: Runs) -> list[int]:
    return [each for value, many in zip(runs[::2], runs[1::2], strict=True) for each in [value] * many]


def _lines(jobs: MapJobs) -> dict[str, _JobLine]:
    waits = set(jobs.waits)
    lines = map(
        _JobLine,
        jobs.queue,
        jobs.priority_class,
        jobs.user,
        jobs.since,
        jobs.until,
        jobs.place,
        (number in waits for number in range(len(jobs.name))),
    )
    return dict(zip(jobs.name, lines, strict=True))


def _columns(names: list[str], lines: dict[str, _JobLine]) -> MapJobs:
    told = [lines[name] for name in names]
    return MapJobs(
        name=tuple(names),
        queue=tuple(line.queue for line in told),
        priority_class=tuple(line.priority_class for line in told),
        user=tuple(line.user for line in told),
        since=tuple(line.since for line in told),
        until=tuple(line.until for line in told),
        place=tuple(line.place for line in told),
        waits=tuple(number for number, line in enumerate(told) if line.waits),
    )
