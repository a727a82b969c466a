"""What a first round under an imported policy would do with a snapshot, beside what runs, by queue."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import NamedTuple

import msgspec

from reconciler.analysis.reports.step_words import step_line
from reconciler.documents.repository import Compiled
from reconciler.importers.report import FirstRound, QueueComparison
from solver.milp.optimiser import Optimiser
from solver.model.quantities import MILLI_PER_GPU
from solver.model.snapshot import Snapshot, normalised
from solver.model.workload import Job, JobName, QueueName, TaskPlacement
from solver.plan.plan import Bind, Evict, Grow, Inadmissible, Plan, Shrink, Waits
from solver.round.solve import solve


def first_round(
    snapshot: Snapshot, compiled: Compiled, queues: Mapping[str, str], optimiser: Optimiser | None
) -> FirstRound:
    """Solve the snapshot once under the policy. `queues`: what queues of the source are called in it.

    A job's queue and class may be called as in the source. Where the snapshot has no nodes, the declared ones count.
    """
    world = _renamed(snapshot, compiled, queues)
    plan = solve(world, compiled.policy, optimiser)
    known = {queue.name for queue in compiled.policy.queues}
    unknown = sorted({job.spec.queue for job in world.jobs} - known)
    return FirstRound(tuple(_comparisons(world, plan)), tuple(_lines(plan)), tuple(unknown))


def _renamed(snapshot: Snapshot, compiled: Compiled, queues: Mapping[str, str]) -> Snapshot:
    known = {queue.name for queue in compiled.policy.queues}

    def called_here(job: Job) -> Job:
        name = job.spec.queue
        found = name if name in known else QueueName(queues.get(name, name))
        return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, queue=found))

    jobs = tuple(map(called_here, snapshot.jobs))
    return normalised(msgspec.structs.replace(snapshot, jobs=jobs, nodes=snapshot.nodes or compiled.nodes))


class _Fate(NamedTuple):
    """What the plan makes of a job: by how many GPUs it holds more or less, and what is said of that."""

    gpus: Fraction
    word: str


def _comparisons(world: Snapshot, plan: Plan) -> Iterable[QueueComparison]:
    fates = _fates(plan)
    held, after = defaultdict[str, Fraction](Fraction), defaultdict[str, Fraction](Fraction)
    counted = defaultdict[str, Counter[str]](Counter)
    for job in world.jobs:
        gpus = _gpus(job.placement)
        fate = fates.get(job.name, _Fate(Fraction(0), ""))
        # An evicted job gives all of it back, whatever else the plan says of it.
        held[job.spec.queue] += gpus
        after[job.spec.queue] += Fraction(0) if fate.word == "evicted" else gpus + fate.gpus
        counted[job.spec.queue][fate.word] += 1
    for queue in sorted(held):
        number = counted[queue]
        words = number["starts"], number["evicted"], number["waiting"]
        yield QueueComparison(queue, float(held[queue]), float(after[queue]), *words)


def _fates(plan: Plan) -> dict[JobName, _Fate]:
    found = dict[JobName, _Fate]()
    for step in plan.steps:
        match step:
            case Bind():
                found[step.job] = _Fate(_gpus(step.tasks), "starts")
            case Grow():
                found[step.job] = _Fate(_gpus(step.tasks), "")
            case Shrink():
                found[step.job] = _Fate(-_gpus(step.tasks), "")
            case Evict():
                found[step.job] = _Fate(Fraction(0), "evicted")
            case _:
                pass
    for verdict in plan.verdicts:
        if isinstance(verdict, Waits | Inadmissible):
            found.setdefault(verdict.job, _Fate(Fraction(0), "waiting"))
    return found


def _gpus(tasks: Iterable[TaskPlacement]) -> Fraction:
    return Fraction(sum(task.gpus for task in tasks), MILLI_PER_GPU)


def _lines(plan: Plan) -> Iterable[str]:
    yield from map(step_line, plan.steps)
    for verdict in plan.verdicts:
        if isinstance(verdict, Waits | Inadmissible):
            word = "wait    " if isinstance(verdict, Waits) else "never   "
            yield f"{word} {verdict.job}: {'; '.join(map(str, verdict.reasons))}"
