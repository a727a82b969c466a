"""Running gangs in parts, for the checker: what an elastic gang holds beyond its minima stands and leaves task by task.

Also judges S2 for gangs that change their size: which tasks may leave, and that the rest is no smaller than its minima.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from solver.plan.check_closeness import topology_violations
from solver.plan.plan import Bind, Evict, Grow, Plan, Shrink, Step
from solver.plan.violation import Violation
from solver.rules.policy import Policy
from solver.world.parts import in_parts, leaving_part, owner_of, part_of, shrinking_apart, without
from solver.world.quantities import Duration, Instant
from solver.world.snapshot import Snapshot, snapshot_of
from solver.world.workload import Job, JobName


@dataclass(frozen=True, slots=True)
class Parted:
    """Live jobs, running elastic ones in parts; what was asked to leave a gang before is not part of it any more.

    `steps`: by which step of the plan each part leaves. A gang that leaves whole is named once; its surplus is `along`.
    """

    jobs: Mapping[JobName, Job]
    steps: Mapping[JobName, Evict | Shrink]
    along: frozenset[JobName]

    @property
    def leaving(self) -> frozenset[JobName]:
        """Every part that leaves by the plan."""
        return self.along | self.steps.keys()


def parted(snapshot: Snapshot, policy: Policy, plan: Plan) -> Parted:
    """The world and the plan, in parts."""
    shrinking = {i.job: i for i in snapshot.in_flight.intents if i.kind == "shrink"}
    busy = {i.job for i in snapshot.in_flight.intents if i.kind in ("stop", "shrink", "grow")}
    jobs: dict[JobName, Job] = {}
    for job in snapshot.jobs:
        known = policy.priority_class(job)
        left = without(job.placement, shrinking[job.name].tasks) if job.name in shrinking else job.placement
        divisible = known is not None and known.preemptible and job.phase == "running" and job.name not in busy
        whole = msgspec.structs.replace(job, placement=left)
        jobs |= {part.name: part for part in (in_parts(whole) if divisible else (whole,))}
    parts_of: dict[JobName, list[JobName]] = {}
    for name in jobs:
        parts_of.setdefault(owner_of(name), []).append(name)
    steps: dict[JobName, Evict | Shrink] = {}
    along = set()
    for step in plan.steps:
        if isinstance(step, Evict):
            steps[step.job] = step
            along |= {name for name in parts_of.get(step.job, ()) if name != step.job}
        elif isinstance(step, Shrink) and step.means != "overdue":
            named = {(task.group, task.index) for task in step.tasks}
            for name in parts_of.get(step.job, ()):
                if {(task.group, task.index) for task in jobs[name].placement} <= named:
                    steps[name] = step
    return Parted(jobs, steps, frozenset(along))


def with_parts_apart(snapshot: Snapshot, plan: Plan) -> tuple[Snapshot, Plan]:
    """The same world and plan, in which what joins or leaves a running gang is a job of its own, bound or evicted."""
    world = shrinking_apart(snapshot)
    known = {job.name: job for job in world.jobs}
    jobs, steps = dict(known), list[Step]()
    for step in plan.steps:
        job = known.get(step.job) if isinstance(step, Shrink | Grow) else None
        if job is None or not isinstance(step, Shrink | Grow):
            steps.append(step)
        elif isinstance(step, Shrink):
            part = part_of(job, leaving_part(job.name), step.tasks)
            rest = msgspec.structs.replace(job, placement=without(job.placement, step.tasks))
            jobs |= {job.name: rest, part.name: part}
            lost = (step.gpus, step.lost_gpu_s, step.beneficiary)
            steps.append(Evict(part.name, step.attempt, "reclaim", step.grace, *lost))
        else:
            joins = part_of(job, JobName(f"{job.name}/joining"), step.tasks)
            jobs[joins.name] = msgspec.structs.replace(joins, phase="pending", placement=())
            steps.append(Bind(joins.name, step.attempt + 1, step.tasks, step.deadline, _left_of(job, world.time)))
    intents = tuple(i for i in world.in_flight.intents if i.kind not in ("shrink", "grow"))
    in_flight = msgspec.structs.replace(world.in_flight, intents=intents)
    apart = snapshot_of(world.time, world.nodes, jobs.values(), in_flight, world.node_sets)
    return apart, msgspec.structs.replace(plan, steps=tuple(steps))


def _left_of(job: Job, now: Instant) -> Duration | None:
    """How much longer a running gang may run: what joins it ends with it."""
    if job.time_limit is None or job.started_at is None:
        return None
    return Duration(max(0, job.started_at + job.time_limit - now))


def size_violations(snapshot: Snapshot, plan: Plan) -> Iterator[Violation]:
    """S2 and S11 for running gangs that change their size, each at most once in a plan, and not while that is in flight."""
    jobs = {job.name: job for job in snapshot.jobs}
    asked = {i.job for i in snapshot.in_flight.intents if i.kind in ("stop", "shrink")}
    growing = {i.job for i in snapshot.in_flight.intents if i.kind == "grow"}
    for name, times in sorted(Counter(s.job for s in plan.steps if isinstance(s, Evict | Shrink | Grow)).items()):
        if times > 1:
            yield Violation("S8", name, f"is evicted or changes its size {times} times")
    for step in plan.steps:
        if isinstance(step, Shrink | Grow):
            job = jobs[step.job]
            busy = asked | growing if isinstance(step, Grow) else asked
            if job.phase != "running" or job.attempt != step.attempt or job.name in busy:
                yield Violation(
                    "S11", job.name, f"changes its size in attempt {step.attempt} while {job.phase} or changing"
                )
            yield from _shrinks(step, job, snapshot) if isinstance(step, Shrink) else _grows(step, job, snapshot)


def _shrinks(step: Shrink, job: Job, snapshot: Snapshot) -> Iterator[Violation]:
    """What stays is no smaller than the minima; of what joins, only what does not become ready in time leaves again."""
    joining = next((i for i in snapshot.in_flight.intents if i.kind == "grow" and i.job == job.name), None)
    late = joining is not None and joining.deadline <= snapshot.time
    if (step.means == "overdue") != (late and joining is not None and set(step.tasks) == set(joining.tasks)):
        yield Violation(
            "S2", job.name, f"shrinks by {step.means}, and what joins it is {'' if late else 'not '}overdue"
        )
    if not step.tasks or any(task not in job.placement for task in step.tasks):
        yield Violation("S2", job.name, "shrinks by tasks that it does not hold")
    for group in job.spec.task_groups:
        rest = [task.index for task in without(job.placement, step.tasks) if task.group == group.name]
        if len(rest) < group.least:
            yield Violation("S2", job.name, f"is left with the tasks {sorted(rest)} of group {group.name}")


def _grows(step: Grow, job: Job, snapshot: Snapshot) -> Iterator[Violation]:
    """Tasks that join have numbers of their own, are on the type that their group uses, and as near as the others have to be."""
    nodes = {node.name: node for node in snapshot.nodes}
    together = (*job.placement, *step.tasks)
    for group in job.spec.task_groups:
        tasks = [task for task in together if task.group == group.name]
        numbers = sorted(task.index for task in tasks)
        if len(set(numbers)) < len(numbers) or any(number >= group.replicas for number in numbers):
            yield Violation("S2", job.name, f"would have the tasks {numbers} of {group.replicas} of group {group.name}")
        types = {nodes[task.node].gpu_type for task in tasks if task.node in nodes and task.devices}
        if len(types) > 1:
            yield Violation("S2", job.name, f"group {group.name} is on {', '.join(sorted(types))}")
    if all(task.node in nodes for task in together):
        yield from topology_violations(job, together, nodes)
