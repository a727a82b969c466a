"""Lets elastic gangs grow and shrink at random while they run: more of both than rounds by themselves would ask for."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

from reconciler.control.plan_executor import PlanExecutor
from reconciler.protocols.ledger import Claim
from solver.model.cluster import Node
from solver.model.inflight import Intent
from solver.model.quantities import Duration, MilliGpu
from solver.model.workload import JobSpec, TaskPlacement
from solver.plan.plan import Certificate, Grow, Plan, Shrink, ShrunkBy, Step

JOIN_DEADLINE = Duration(20_000)
"""As for starts: shorter than orders may be on their way, so that some arrive after the growth was given up."""
GRACE = Duration(10_000)


def resize(leader: PlanExecutor, chance: random.Random, nodes: Iterable[Node]) -> None:
    """Perhaps change the size of one gang, as a step of a plan would; what has not joined in time is told to leave.

    `nodes`: as they really are. What the ledger holds is read once, and nobody else holds it meanwhile: the loop is between
    two passes.
    """
    ledger, now = leader.plane.ledger, leader.plane.clock.now()
    claims, intents = ledger.claims(), ledger.intents()
    steps: list[Step] = []
    for claim in claims:
        own = {intent.kind: intent for intent in intents if (intent.job, intent.attempt) == (claim.job, claim.attempt)}
        if claim.running_since is None or own.keys() & {"stop", "shrink"}:
            continue
        spec = leader.plane.jobs.job(claim.job).spec
        if "grow" in own:
            if own["grow"].deadline <= now:
                steps.append(_shrink(claim, own["grow"].tasks, "overdue"))
        elif chance.random() < 0.6:
            steps += _grow(claim, spec, claims, intents, nodes)
        elif len(claim.tasks) > spec.task_groups[0].least:
            steps.append(_shrink(claim, (chance.choice(claim.tasks),), "converge"))
    leader.act(Plan("", "", tuple(steps[:1]), (), Certificate("greedy", (), 0.0, "none", 0)))


def _shrink(claim: Claim, tasks: tuple[TaskPlacement, ...], means: ShrunkBy) -> Shrink:
    gpus = MilliGpu(sum(task.gpus for task in tasks))
    return Shrink(claim.job, claim.attempt, tasks, means, GRACE, gpus, 0.0)


def _grow(
    claim: Claim, spec: JobSpec, claims: Iterable[Claim], intents: Iterable[Intent], nodes: Iterable[Node]
) -> Iterator[Grow]:
    """By one task, on the first node with whole GPUs that nobody holds or was promised."""
    group = spec.task_groups[0]
    indices = {task.index for task in claim.tasks}
    missing = [index for index in range(group.replicas) if index not in indices]
    taken = {device for held in claims for task in held.tasks for device in task.devices}
    taken |= {device for intent in intents for task in intent.tasks for device in task.devices}
    for node in nodes:
        free = [gpu.id for gpu in node.gpus if gpu.id not in taken and gpu.instances is None]
        if missing and group.shape.gpus and len(free) >= group.shape.gpus:
            task = TaskPlacement(group.name, missing[0], node.name, tuple(free[: group.shape.gpus]))
            yield Grow(claim.job, claim.attempt, (task,), JOIN_DEADLINE)
            return
