"""Strict queues: no job starts that would delay an earlier one of its queue that waits.

Whether a job may run around another is decided here and nowhere else: it may if it takes nothing that the other could use.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from solver.model.cluster import GpuType
from solver.model.shape import Shape
from solver.model.workload import JobName, JobSpec, QueueName
from solver.queueing.demand import StartCandidate
from solver.quota.options import Option


@dataclass(frozen=True, slots=True)
class Reach:
    """What a gang could use of a cluster: GPUs of these types (None: of every type), and hosts of every type."""

    gpu_types: frozenset[GpuType] | None
    every_host: bool

    @classmethod
    def of(cls, spec: JobSpec) -> Reach:
        """By what it accepts, not by what would let it in: types that a max of 0 closes to it count too."""
        types: set[GpuType] = set()
        picky = True
        for group in spec.task_groups:
            if group.shape.uses_gpus:
                types.update(group.shape.gpu_types)
                picky = picky and bool(group.shape.gpu_types)
        every_host = any(_needs_host(group.shape) and not group.shape.uses_gpus for group in spec.task_groups)
        return cls(frozenset(types) if picky else None, every_host)


def may_pass(spec: JobSpec, option: Option, first: Reach) -> bool:
    """Whether a gang served this way leaves alone all that an earlier one could use."""
    shapes = [group.shape for group in spec.task_groups]
    anywhere = any(_needs_host(shape) and not shape.uses_gpus for shape in shapes)
    if anywhere or (first.every_host and any(map(_needs_host, shapes))):
        return False
    taken = {gpu_type for gpu_type in option.gpu_types if gpu_type is not None}
    return not taken if first.gpu_types is None else not taken & first.gpu_types


@dataclass(slots=True)
class Lines:
    """The jobs in line in each strict queue while a round hands out room. Candidates come in order."""

    candidates: Sequence[StartCandidate]
    _waiting: dict[QueueName, dict[JobName, Reach]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for candidate in self.candidates:
            if candidate.strict:
                line = self._waiting.setdefault(candidate.job.spec.queue, {})
                line[candidate.job.name] = Reach.of(candidate.job.spec)

    def start(self, candidate: StartCandidate) -> None:
        """It stands in line no more."""
        if candidate.strict:
            self._waiting[candidate.job.spec.queue].pop(candidate.job.name, None)

    def blocker(self, candidate: StartCandidate, option: Option, others: Collection[JobName] = ()) -> JobName | None:
        """The first one in line that it would delay, served this way; None: it delays none. `others`: those that do not count."""
        if candidate.strict:
            for name, reach in self._waiting[candidate.job.spec.queue].items():
                if name == candidate.job.name:
                    break
                if name not in others and not may_pass(candidate.job.spec, option, reach):
                    return name
        return None

    def ahead(self, candidate: StartCandidate) -> JobName | None:
        """The one that stands next before it in line; None where none does."""
        before = None
        for name in self._waiting[candidate.job.spec.queue] if candidate.strict else ():
            if name == candidate.job.name:
                break
            before = name
        return before


def behind_nobody(candidates: Iterable[StartCandidate], able: Collection[int]) -> tuple[StartCandidate, ...]:
    """Candidates of a likeness that is able to start, in the ways that delay none of their strict queue that is not."""
    stuck: dict[QueueName, dict[Reach, None]] = {}
    likeness: dict[tuple[int, int], int] = {}
    left: list[StartCandidate] = []
    for candidate in candidates:
        spec = candidate.job.spec
        line = stuck.setdefault(spec.queue, {}) if candidate.strict else {}
        options = _around(candidate, line)
        if candidate.likeness not in able or not options:
            line[Reach.of(spec)] = None
        elif len(options) == len(candidate.options):
            left.append(candidate)
        else:
            # Fewer ways than its like ahead of it have: it is like them no more.
            alike = likeness.setdefault((candidate.likeness, len(options)), -1 - len(likeness))
            left.append(replace(candidate, options=options, likeness=alike))
    return tuple(left)


def first_in_line(waiting: Sequence[StartCandidate]) -> Iterator[StartCandidate]:
    """Candidates that could start before all others that wait, with the options in which they delay none of these."""
    before: dict[QueueName, dict[Reach, None]] = {}
    for candidate in waiting:
        spec = candidate.job.spec
        line = before.setdefault(spec.queue, {}) if candidate.strict else {}
        options = _around(candidate, line)
        if options:
            yield candidate if len(options) == len(candidate.options) else replace(candidate, options=options)
        line[Reach.of(spec)] = None


def passing_nobody(
    candidates: Sequence[StartCandidate], chosen: Iterable[tuple[StartCandidate, Option]]
) -> set[JobName]:
    """Those chosen that may start beside each other, once those that would pass one that is not chosen stay behind too."""
    option_of = {candidate.job.name: option for candidate, option in chosen}
    lines = Lines(candidates)
    for candidate in candidates:
        option = option_of.get(candidate.job.name)
        if option is not None and lines.blocker(candidate, option) is None:
            lines.start(candidate)
        else:
            option_of.pop(candidate.job.name, None)
    return set(option_of)


def _around(candidate: StartCandidate, line: Iterable[Reach]) -> tuple[Option, ...]:
    """The options in which it leaves alone all that these in its line could use."""
    spec = candidate.job.spec
    return tuple(o for o in candidate.options if all(may_pass(spec, o, reach) for reach in line))


def _needs_host(shape: Shape) -> bool:
    return any(shape.beside.values())
