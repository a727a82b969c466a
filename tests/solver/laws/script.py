"""Rounds written by hand: what a plan would say, step by step, so that the judge can be shown good ones and bad ones.

start a1 n1 n1          two tasks on node n1
promise a1 n1           one task, on what is free there once those have left who are asked to
evict b1 for a1         and: preempt b1 for a1, straddle b1 for a1
shrink b1 2 for a1      by two tasks
move c1 n2 for a1       it goes on with one task on n2
grow a1 n1              one task more
"""

from __future__ import annotations

from collections.abc import Sequence

from solver.model.cluster import DeviceId, NodeName
from solver.model.parts import surplus_of
from solver.model.quantities import Duration, MilliGpu
from solver.model.snapshot import Snapshot
from solver.model.workload import Job, JobName, TaskPlacement
from solver.plan.plan import Bind, Certificate, Evict, EvictedBy, Grow, Nominate, Plan, Shrink, Step
from solver.policy.policy import Policy
from tests.solver.laws.loop import Decide

_SOON = Duration(300_000)
_MEANS: dict[str, EvictedBy] = {"evict": "reclaim", "preempt": "preempt", "straddle": "straddle", "move": "move"}


def scripted(*rounds: str) -> Decide:
    """Decides these rounds one after the other, and then nothing; what was promised starts by itself."""
    left = list(rounds)

    def decide(snapshot: Snapshot, policy: Policy) -> Plan:
        lines = [line.split() for line in left.pop(0).split(";") if line.strip()] if left else []
        return plan_of(snapshot, policy, lines)

    return decide


def plan_of(snapshot: Snapshot, policy: Policy, lines: Sequence[Sequence[str]]) -> Plan:
    """What these lines say, as a plan."""
    page = _Page(snapshot)
    steps = [*page.promised(), *page.leaving(lines), *page.joining(lines)]
    return Plan(snapshot.digest, policy.digest, tuple(steps), (), Certificate("greedy", (), 0.0, "none", 0))


class _Page:
    """The steps of one round, and which GPUs are nobody's."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.jobs = {str(job.name): job for job in snapshot.jobs}
        self.intents = [intent for intent in snapshot.in_flight.intents if intent.kind == "nominate"]
        held = [task for job in snapshot.jobs for task in job.placement]
        held += [task for intent in self.intents for task in intent.tasks]
        self.held = {device for task in held for device in task.devices}

    def promised(self) -> list[Step]:
        return [Bind(intent.job, intent.attempt, intent.tasks, _SOON) for intent in self.intents]

    def leaving(self, lines: Sequence[Sequence[str]]) -> list[Step]:
        found = list[Step]()
        for verb, name, *rest in lines:
            job, to = self.jobs[name], JobName(rest[-1]) if "for" in rest else None
            if verb in _MEANS:
                gpus = MilliGpu(sum(task.gpus for task in job.placement))
                self._give_up(job.placement)
                found.append(Evict(job.name, job.attempt, _MEANS[verb], Duration(30_000), gpus, 0.0, to))
            elif verb == "shrink":
                tasks = surplus_of(job)[-int(rest[0]) :]
                self._give_up(tasks)
                gpus = MilliGpu(sum(task.gpus for task in tasks))
                found.append(Shrink(job.name, job.attempt, tasks, "reclaim", Duration(30_000), gpus, 0.0, to))
        return found

    def joining(self, lines: Sequence[Sequence[str]]) -> list[Step]:
        found = list[Step]()
        for verb, name, *rest in lines:
            job = self.jobs[name]
            where = rest[: rest.index("for")] if "for" in rest else rest
            match verb:
                case "start":
                    found.append(Bind(job.name, job.attempt + 1, self._tasks(job, where, 0), _SOON))
                case "promise" | "move":
                    found.append(Nominate(job.name, job.attempt + 1, self._tasks(job, where, 0), _SOON))
                case "grow":
                    tasks = self._tasks(job, where, len(job.placement))
                    found.append(Grow(job.name, job.attempt, tasks, _SOON))
                case _:
                    pass
        return found

    def _give_up(self, tasks: Sequence[TaskPlacement]) -> None:
        self.held -= {device for task in tasks for device in task.devices}

    def _tasks(self, job: Job, nodes: Sequence[str], first: int) -> tuple[TaskPlacement, ...]:
        return tuple(
            TaskPlacement(
                "worker", first + number, NodeName(name), self._take(name, job.spec.task_groups[0].shape.gpus)
            )
            for number, name in enumerate(nodes)
        )

    def _take(self, name: str, count: int) -> tuple[DeviceId, ...]:
        (node,) = (node for node in self.snapshot.nodes if node.name == name)
        free = [gpu.id for gpu in node.gpus if gpu.id not in self.held][:count]
        assert len(free) == count, f"{name} has no {count} GPUs left"
        self.held |= set(free)
        return tuple(free)
