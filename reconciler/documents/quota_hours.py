"""Quota that differs in windows that come again: what is wrong with it alone, and in the tree at any moment.

The tree is judged once for each set of windows that are ever open together, and a problem is told with the first moment of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final, NamedTuple

import msgspec

from reconciler.documents.declarations import Declaration
from reconciler.documents.quota import QuotaTree
from reconciler.documents.repeats import repeat_problems, with_windows
from reconciler.model.problem import Path, Problem, SourceLocation, did_you_mean
from solver.model.cluster import GpuType
from solver.model.quantities import Duration, Instant, MilliGpu
from solver.policy.harm import Convergence
from solver.policy.policy import Queue, Quota, QuotaHours, QuotaRow
from solver.policy.windows import ROW_FIELDS, moments, open_hours, quota_in

MOMENTS_MAX: Final = 2_000
"""So many sets of windows that are open together a repository may have: each is judged like a quota tree of its own."""

_WRITTEN: Final = {
    "guaranteed": "guaranteed",
    "max": "max",
    "per_user": "perUser",
    "lendable": "lendable",
    "shared": "shared",
}


def with_hours_of(queue: Declaration[Queue]) -> Declaration[Queue]:
    """A queue whose hours have all their windows, and know where in the file they stand."""
    if not queue.value.hours:
        return queue
    hours = tuple(
        msgspec.structs.replace(
            known,
            repeat=with_windows(known.repeat, known.start),
            origin=queue.origin_of(("spec", "hours", index)),
            quota=tuple(
                msgspec.structs.replace(row, origin=queue.origin_of(("spec", "hours", index, "quota", number)))
                for number, row in enumerate(known.quota)
            ),
        )
        for index, known in enumerate(queue.value.hours)
    )
    return queue.holding(msgspec.structs.replace(queue.value, hours=hours))


def hours_problems(tree: QuotaTree, convergence: Convergence) -> Iterator[Problem]:
    """Everything that is wrong with the hours of queues; at which moments guarantees can't be kept only where they are a tree.

    `convergence`: what holds for queues where they, and those above them, say nothing.
    """
    found = [problem for queue in tree.queues for problem in _own_problems(queue, tree)]
    yield from found
    if not found and tree.is_tree:
        yield from _problems_at_moments(tree)
        for queue in tree.queues:
            yield from _never_kept(queue, tree, convergence)


def _own_problems(queue: Declaration[Queue], tree: QuotaTree) -> Iterator[Problem]:
    names = set[str]()
    for index, hours in enumerate(queue.value.hours):
        at: Path = ("spec", "hours", index)
        if hours.name in names:
            message = f"there are hours {hours.name} already"
            yield queue.problem((*at, "name"), "duplicate-name", message, "Rename or delete one of them.")
        names.add(hours.name)
        yield from repeat_problems(queue, (*at, "repeat"), hours.repeat, hours.start)
        if not hours.quota and hours.weight is None:
            yield queue.problem(at, "missing-field", f"hours {hours.name} change nothing", "Add quota, or weight.")
        yield from _row_problems(queue, at, hours, tree)
    for one, other in combinations(queue.value.hours, 2):
        yield from _overlap(queue, one, other)


def _row_problems(queue: Declaration[Queue], at: Path, hours: QuotaHours, tree: QuotaTree) -> Iterator[Problem]:
    seen = set[str]()
    for number, row in enumerate(hours.quota):
        place: Path = (*at, "quota", number)
        if row.gpu_type in seen:
            message = f"{row.gpu_type} has two entries"
            yield queue.problem((*place, "gpuType"), "duplicate-gpu-type", message, "Merge them into one.")
        seen.add(row.gpu_type)
        if tree.capacity and row.gpu_type not in tree.capacity:
            message, fix = f"no NodePool has GPUs of type {row.gpu_type}", did_you_mean(row.gpu_type, tree.capacity)
            yield queue.problem((*place, "gpuType"), "unknown-gpu-type", message, fix)
        if not _said(row):
            fix = f"Add one of {', '.join(_WRITTEN.values())}."
            yield queue.problem(place, "missing-field", f"it changes nothing of {row.gpu_type}", fix)


def _overlap(queue: Declaration[Queue], one: QuotaHours, other: QuotaHours) -> Iterator[Problem]:
    """Where windows of two hours are open together that say the same: which of them holds nothing tells."""
    both = sorted(_sets(one) & _sets(other))
    if not both:
        return
    edges = sorted({window.start for hours in (one, other) for window in hours.repeat.windows})
    two = msgspec.structs.replace(queue.value, hours=(one, other))
    at = next((at for at in edges if len(open_hours(two, at)) == 2), None)
    if at is not None:
        index = queue.value.hours.index(other)
        message = f"from {at} on hours {one.name} and {other.name} are open together, and both set {', '.join(both)}"
        fix = "Shorten one, or have only one of them set it."
        yield queue.problem(("spec", "hours", index), "hours-overlap", message, fix)


def _never_kept(queue: Declaration[Queue], tree: QuotaTree, otherwise: Convergence) -> Iterator[Problem]:
    """A max that rises again before jobs have to leave for it: each window begins their time anew, so none ever does."""
    said = (step.value.convergence for step in tree.upwards(queue))
    convergence = next((known for known in said if known is not None), otherwise)
    types = sorted({row.gpu_type for hours in queue.value.hours for row in hours.quota if row.max is not None})
    for gpu_type in types if convergence.evict != "none" else ():
        lower = next((one for one in _times_below(queue.value, gpu_type) if one.lasts <= convergence.within), None)
        if lower is not None:
            held = f"max {lower.max} {gpu_type} holds from {lower.start} for {lower.lasts} alone"
            message = f"{held}, and jobs may go on for {convergence.within}: none ever leaves for it"
            fix = f"Let convergence.within be less than {lower.lasts}, or say evict: none."
            at = next(
                ("spec", "hours", index, "quota", number, "max")
                for index, hours in enumerate(queue.value.hours)
                for number, row in enumerate(hours.quota)
                if row.gpu_type == gpu_type and row.max is not None
            )
            yield queue.problem(at, "max-never-kept", message, fix, severity="warning")


class _TimeBelow(NamedTuple):
    """For how long a max is lower than before, until it rises."""

    start: Instant
    lasts: Duration
    max: MilliGpu


def _times_below(queue: Queue, gpu_type: GpuType) -> Iterator[_TimeBelow]:
    windows = (window for hours in queue.hours for window in hours.repeat.windows)
    fell: tuple[Instant, MilliGpu] | None = None
    before = _max_of(queue.quota, gpu_type)
    for at in sorted({at for window in windows for at in (window.start, window.until)}):
        most = _max_of(quota_in(queue, open_hours(queue, at)), gpu_type)
        if most is not None and (before is None or most < before):
            fell = at, most
        elif most != before:
            if fell is not None:
                yield _TimeBelow(fell[0], Duration(at - fell[0]), fell[1])
            fell = None
        before = most


def _max_of(rows: Sequence[Quota], gpu_type: GpuType) -> MilliGpu | None:
    return next((row.max for row in rows if row.gpu_type == gpu_type), None)


def _sets(hours: QuotaHours) -> set[str]:
    rows = {f"{_WRITTEN[field]} of {row.gpu_type}" for row in hours.quota for field in _said(row)}
    return rows | ({"weight"} if hours.weight is not None else set())


def _said(row: Quota | QuotaRow) -> list[str]:
    return [field for field in ROW_FIELDS if getattr(row, field) is not None]


@dataclass(frozen=True)
class _QueueInHours(Declaration[Queue]):
    """A queue while windows are open: a problem with a row stands where that was written."""

    written: Mapping[tuple[str, str], Path]

    def place(self, path: Path) -> SourceLocation:
        """Line and column of the value at a path."""
        if path[:2] != ("spec", "quota") or len(path) < 3 or not isinstance(path[2], int):
            return self.document.place(path)
        gpu_type, field = self.value.quota[path[2]].gpu_type, str(path[3]) if len(path) > 3 else ""
        return self.document.place(self.written.get((gpu_type, field)) or self.written[gpu_type, ""])


def _in_hours(queue: Declaration[Queue], hours: Sequence[QuotaHours]) -> _QueueInHours:
    value, written = queue.value, dict[tuple[str, str], Path]()
    rows: list[tuple[Path, Quota | QuotaRow]] = [
        (("spec", "quota", number), row) for number, row in enumerate(value.quota)
    ]
    for known in hours:
        index = value.hours.index(known)
        rows += [(("spec", "hours", index, "quota", number), row) for number, row in enumerate(known.quota)]
    for at, row in rows:
        written.setdefault((row.gpu_type, ""), at)
        written |= {(row.gpu_type, _WRITTEN[field]): (*at, _WRITTEN[field]) for field in _said(row)}
    changed = msgspec.structs.replace(value, quota=quota_in(value, hours))
    return _QueueInHours(queue.file, queue.name, queue.document, changed, written)


def _problems_at_moments(tree: QuotaTree) -> Iterator[Problem]:
    known = set(tree.quota_problems(tree.queues)) if any(queue.value.hours for queue in tree.queues) else set()
    for count, (at, open_) in enumerate(moments([queue.value for queue in tree.queues])):
        if count == MOMENTS_MAX:
            queue = next(queue for queue in tree.queues if queue.name in open_)
            message = f"more than {MOMENTS_MAX} sets of windows are open together at one time or another"
            yield queue.problem(("spec", "hours"), "too-much", message, "Let queues have the same hours.")
            return
        queues = [
            _in_hours(queue, open_[queue.value.name]) if queue.value.name in open_ else queue for queue in tree.queues
        ]
        then = QuotaTree(queues, tree.known, tree.capacity)
        which = ", ".join(f"{hours.name} of {name}" for name, some in sorted(open_.items()) for hours in some)
        for problem in then.quota_problems(_touched(then, open_)):
            if problem not in known and not _is_told_without_hours(problem, known):
                known.add(problem)
                yield msgspec.structs.replace(problem, message=f"from {at} on, in hours {which}: {problem.message}")


def _is_told_without_hours(problem: Problem, known: Collection[Problem]) -> bool:
    """What no hours change, and is only told in another place."""
    same = problem.code == "shared-with-nobody"
    return same and any(
        (one.code, one.file, one.message) == (problem.code, problem.file, problem.message) for one in known
    )


def _touched(tree: QuotaTree, names: Collection[str]) -> Iterator[Declaration[Queue]]:
    """These queues, those above them and those below them."""
    found = {step.name for name in names for step in tree.upwards(tree.by_name[name])}
    below = [child for name in names for child in tree.children[name]]
    while below:
        queue = below.pop()
        found.add(queue.name)
        below += tree.children[queue.name]
    return (queue for queue in tree.queues if queue.name in found)
