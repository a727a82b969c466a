"""Rounds in a closed world: nobody arrives, nobody ends, and who is asked to leave has left by the next round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import msgspec

from solver.model.quantities import Instant
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job
from solver.plan.plan import Bind, Evict, Grow, Nominate, Plan, Reserve, Shrink, Step, Unreserve
from solver.policy.policy import Policy
from tests.solver.aftermath import applied, victims_gone
from tests.solver.laws.book import Book, Part, spot_of
from tests.solver.laws.worlds import World

Decide = Callable[[Snapshot, Policy], Plan]

ROUNDS_MAX = 12
"""Rounds in which something changes, from one change of the clock's to the next."""

STEP_MS = 1000
"""Between two rounds: shorter than any protection."""

EPOCHS_MAX = 12


@dataclass(frozen=True)
class Round:
    """One round of a closed world. `epoch`: how often the end of a protection had to be waited for before it."""

    snapshot: Snapshot
    plan: Plan
    policy: Policy
    epoch: int

    @cached_property
    def book(self) -> Book:
        """What the rules say of what it was shown."""
        return Book.of(self.snapshot, self.policy)

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """What it changes."""
        return tuple(step for step in self.plan.steps if not isinstance(step, Reserve | Unreserve))

    @cached_property
    def promised_before(self) -> frozenset[str]:
        """Jobs that an earlier round promised their GPUs."""
        return frozenset(str(i.job) for i in self.snapshot.in_flight.intents if i.kind == "nominate")

    @cached_property
    def evictions(self) -> tuple[Evict | Shrink, ...]:
        """Who leaves, in whole or in part, so that another can start; nobody who moves."""
        found = (step for step in self.steps if isinstance(step, Evict | Shrink))
        return tuple(step for step in found if step.beneficiary is not None and step.means != "move")

    @cached_property
    def moves(self) -> dict[str, str]:
        """Who moves, and for whom."""
        return {
            str(step.job): str(step.beneficiary)
            for step in self.steps
            if isinstance(step, Evict) and step.means == "move"
        }

    @cached_property
    def starts(self) -> dict[str, Bind | Nominate]:
        """Jobs that this round starts, or promises GPUs that others leave; nobody who moves or was promised before."""
        return {
            str(step.job): step
            for step in self.steps
            if isinstance(step, Bind | Nominate)
            and str(step.job) not in self.moves
            and str(step.job) not in self.promised_before
        }

    def parts(self, step: Evict | Shrink) -> frozenset[Part]:
        """What leaves by a step."""
        every = self.book.jobs[str(step.job)].parts
        if isinstance(step, Evict):
            return frozenset(every)
        named = {spot_of(task).number for task in step.tasks}
        return frozenset(part for part in every if {spot.number for spot in part.spots} <= named)

    def leaving_for(self, name: str) -> frozenset[Part]:
        """What leaves for one job."""
        return frozenset(part for step in self.evictions if step.beneficiary == name for part in self.parts(step))

    @cached_property
    def leaving(self) -> frozenset[Part]:
        """All that leaves so that others can start."""
        return frozenset(part for step in self.evictions for part in self.parts(step))


class Course(NamedTuple):
    """The rounds of a closed world, and how it stands when they are over."""

    world: World
    rounds: tuple[Round, ...]
    end: Snapshot
    rests: bool

    @property
    def book(self) -> Book:
        """What the rules say of how it stands in the end."""
        return Book.of(self.end, self.world.policy)


def course_of(world: World, decide: Decide) -> Course:
    """Rounds until nothing changes and no protection is left to end; or for as long as one may take."""
    snapshot, policy = world
    rounds, epoch, changing = list[Round](), 0, 0
    while changing < ROUNDS_MAX and epoch < EPOCHS_MAX:
        held = Round(snapshot, decide(snapshot, policy), policy, epoch)
        if held.steps:
            rounds.append(held)
            changing += 1
            snapshot = _after(snapshot, held.plan)
            continue
        until = _next_end(held.book, policy)
        if until is None:
            return Course(world, tuple(rounds), snapshot, rests=True)
        snapshot, epoch, changing = _at(snapshot, until), epoch + 1, 0
    return Course(world, tuple(rounds), snapshot, rests=False)


def _after(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """The next round's world. Jobs that started together did so one after the other, the earlier submitted first."""
    later = _at(victims_gone(applied(snapshot, plan)), int(snapshot.time) + STEP_MS)
    begun = {step.job for step in plan.steps if isinstance(step, Bind)}
    in_turn = sorted((job for job in later.jobs if job.name in begun), key=lambda job: (job.submitted_at, job.name))
    began = {job.name: Instant(snapshot.time + place) for place, job in enumerate(in_turn)}

    def with_start(job: Job) -> Job:
        return msgspec.structs.replace(job, started_at=began[job.name]) if job.name in began else job

    return snapshot_of(later.time, later.nodes, map(with_start, later.jobs), later.in_flight, later.node_sets)


def _at(snapshot: Snapshot, time: int) -> Snapshot:
    return msgspec.structs.replace(snapshot, time=Instant(time))


def _next_end(book: Book, policy: Policy) -> int | None:
    """When the next protection or back-off ends, or a guarantee is overdue where that makes a difference."""
    ends = [job.protected_until for job in book.running] + [job.backs_off_until for job in book.waiting]
    ends += [job.preempts_from for job in book.waiting]
    shielded = any(
        known.protection.min_runtime or known.protection.cool_down or known.protection.evictions_per_day is not None
        for known in policy.priority_classes
    )
    if shielded or book.min_gain or any(job.preempts_from for job in book.waiting):
        ends += [job.submitted + book.reclaim_within[job.queue] for job in book.waiting]
    return min((end for end in ends if end > book.now), default=None)


def step_line(step: Step) -> str:
    """A step in a few words."""
    match step:
        case Bind(job, _, tasks):
            return f"start {job} on {_places(tasks)}"
        case Nominate(job, _, tasks):
            return f"promise {job} {_places(tasks)}"
        case Evict():
            return f"{'move' if step.means == 'move' else 'evict'} {step.job} for {step.beneficiary} ({step.means})"
        case Shrink():
            return f"shrink {step.job} by {len(step.tasks)} for {step.beneficiary} ({step.means})"
        case Grow(job, _, tasks):
            return f"grow {job} on {_places(tasks)}"
        case _:
            return f"{type(step).__name__.lower()} {getattr(step, 'job', '')}".strip()


def _places(tasks: object) -> str:
    assert isinstance(tasks, tuple)
    return ",".join(f"{task.node}:{len(task.devices)}" if task.share is None else task.devices[0] for task in tasks)


def course_lines(course: Course) -> list[str]:
    """The rounds, one a line."""
    lines, epoch = list[str](), 0
    for number, held in enumerate(course.rounds, 1):
        if held.epoch != epoch:
            lines.append(f"  ... until {int(held.snapshot.time) // 60_000}m, when a protection is over")
            epoch = held.epoch
        lines.append(f"  round {number}: " + "; ".join(map(step_line, held.steps)))
    return [*lines, "  at rest" if course.rests else "  and does not come to rest"]
