"""A cluster in which plans are acted on, partly, late or not at all, and which knows what has become of it since."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable

import msgspec

from solver.capacity.partitioning import HOUR_MS, mig_changes
from solver.model.cluster import DeviceId, Node, NodeName
from solver.model.inflight import (
    ConvergenceClock,
    InFlight,
    Intent,
    IntentKind,
    Repartitioning,
    Reservation,
    StopPurpose,
)
from solver.model.node_sets import NodeSet
from solver.model.parts import without
from solver.model.quantities import Duration, Instant
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName, TaskPlacement
from solver.plan.plan import (
    Bind,
    Evict,
    Grow,
    Nominate,
    Plan,
    Release,
    Repartition,
    Reserve,
    Shrink,
    Step,
    Unreserve,
    Withdraw,
)
from solver.policy.policy import Policy
from solver.preemption.departures import clocks_of
from tests.disturbed.drawn_policies import hours, maybe

SLOW = 0.5
"""How likely it is that something asked for is still not done when it is looked at."""
GRACE, MAKING = Duration(30_000), Duration(120_000)


def gpus_of(tasks: Iterable[TaskPlacement]) -> set[DeviceId]:
    """The GPUs on which tasks are, wholly or in part."""
    return {task.mig.gpu if task.mig else device for task in tasks for device in task.devices}


class Cluster:
    """Nodes, jobs and what is in flight. `limited`: some groups may be limited to sets of nodes."""

    def __init__(self, chance: random.Random, nodes: Iterable[Node], limited: bool) -> None:
        self._chance = chance
        self._limited = limited
        self.now = Instant(hours(10))
        self.nodes = {node.name: node for node in nodes}
        self.jobs: dict[JobName, Job] = {}
        self.intents: list[Intent] = []
        self._lengths: dict[JobName, Duration] = {}
        self._reservations: dict[JobName, Reservation] = {}
        self._repartitions: dict[DeviceId, Repartitioning] = {}
        self._partitioned: list[tuple[DeviceId, Instant]] = []
        self._clocks: tuple[ConvergenceClock, ...] = ()

    def arrive(self, job: Job) -> None:
        self.jobs[job.name] = job
        self._lengths[job.name] = hours(self._chance.choice([0.2, 0.5, 1.0, 3.0]))

    def snapshot(self, policy: Policy) -> Snapshot:
        """What a round is shown. The clocks of broken limits tick from the first round under which they are broken."""
        nodes = list(self.nodes.values())
        known = {gpu.id for node in nodes for gpu in node.gpus}
        changed = ((device, at) for device, at in self._partitioned if at > self.now - HOUR_MS)
        in_flight = InFlight(
            intents=tuple(self.intents),
            reservations=tuple(self._reservations.values()),
            counters=mig_changes(nodes, changed),
            convergence=self._clocks,
            repartitions=tuple(asked for asked in self._repartitions.values() if asked.device in known),
        )
        snapshot = snapshot_of(self.now, nodes, self.jobs.values(), in_flight, self._node_sets())
        self._clocks = clocks_of(snapshot, policy, "c0ffee")
        settled = msgspec.structs.replace(snapshot.in_flight, convergence=self._clocks)
        return msgspec.structs.replace(snapshot, in_flight=settled)

    def _node_sets(self) -> list[NodeSet]:
        names = sorted(self.nodes)
        return [NodeSet("sa", tuple(names[::2])), NodeSet("sb", tuple(names[:2]))] if self._limited else []

    def held_twice(self) -> dict[DeviceId, list[JobName]]:
        """Devices that several tasks have of which one has it for itself."""
        held: defaultdict[DeviceId, list[tuple[JobName, TaskPlacement]]] = defaultdict(list)
        for job in self.jobs.values():
            for task in job.placement:
                for device in task.devices:
                    held[device].append((job.name, task))
        return {
            device: [name for name, _ in tasks]
            for device, tasks in held.items()
            if len(tasks) > 1 and any(task.share is None for _, task in tasks)
        }

    def act(self, plan: Plan, *, partly: bool, refused: float) -> None:
        """Take the steps of a plan, or `partly` only the first of them; some starts and partitions are refused."""
        steps = plan.steps
        if partly and steps:
            steps = steps[: self._chance.randint(0, len(steps))]
        unmade = set[DeviceId]()
        for step in steps:
            if isinstance(step, Bind | Grow | Repartition) and refused and maybe(self._chance, refused):
                unmade |= {step.device} if isinstance(step, Repartition) else set()
            elif not (isinstance(step, Bind | Grow) and unmade & gpus_of(step.tasks)):
                self._take(step)

    def _take(self, step: Step) -> None:
        match step:
            case Bind() | Grow():
                self._begin(step)
            case Release() | Evict() | Shrink():
                self._make_leave(step)
            case Nominate():
                self._settle_promise(step.job)
                self._ask("nominate", step.job, step.attempt, step.deadline, step.tasks)
            case Withdraw():
                self._forget(step.job, "nominate")
            case Reserve():
                self._reservations[step.job] = Reservation(step.job, step.tasks, step.start, step.until)
            case Unreserve():
                self._reservations.pop(step.job, None)
            case Repartition():
                self._partition(step)

    def _begin(self, step: Bind | Grow) -> None:
        if isinstance(step, Grow):
            assert not any(intent.job == step.job for intent in self.intents), step
            self._change(step.job, placement=(*self.jobs[step.job].placement, *step.tasks))
            self._ask("grow", step.job, step.attempt, step.deadline, step.tasks)
            return
        assert self.jobs[step.job].phase == "pending", step
        self._settle_promise(step.job)
        self._change(step.job, phase="starting", attempt=step.attempt, placement=step.tasks, time_limit=step.time_limit)
        self._ask("start", step.job, step.attempt, step.deadline, step.tasks)

    def _make_leave(self, step: Release | Evict | Shrink) -> None:
        assert not self.leaves(step.job), step
        if isinstance(step, Shrink):
            assert not any(intent.job == step.job and intent.kind == "shrink" for intent in self.intents), step
            self._ask("shrink", step.job, step.attempt, step.grace, step.tasks, step.beneficiary)
        elif isinstance(step, Evict):
            self.stop(step.job, step.grace, "evict", step.beneficiary)
        else:
            self.stop(step.job, GRACE, "requeue")

    def _partition(self, step: Repartition) -> None:
        self._partitioned.append((step.device, self.now))
        attempt = sum(device == step.device for device, _ in self._partitioned)
        self._repartitions[step.device] = Repartitioning(
            step.node, step.device, attempt, self.now, self.now.after(MAKING), step.instances
        )

    def _ask(
        self,
        kind: IntentKind,
        job: JobName,
        attempt: int,
        within: Duration,
        tasks: tuple[TaskPlacement, ...] = (),
        beneficiary: JobName | None = None,
        purpose: StopPurpose = "end",
    ) -> None:
        deadline = self.now.after(within)
        self.intents.append(Intent(kind, job, attempt, self.now, deadline, tasks, beneficiary, purpose))

    def _change(self, name: JobName, **fields: object) -> None:
        self.jobs[name] = msgspec.structs.replace(self.jobs[name], **fields)

    def _forget(self, job: JobName, *kinds: IntentKind) -> None:
        self.intents = [intent for intent in self.intents if intent.job != job or intent.kind not in kinds]

    def _settle_promise(self, job: JobName) -> None:
        self._forget(job, "nominate")
        self._reservations.pop(job, None)

    def leaves(self, name: JobName) -> bool:
        return any(intent.job == name and intent.kind == "stop" for intent in self.intents)

    def stop(self, name: JobName, grace: Duration, purpose: StopPurpose, beneficiary: JobName | None = None) -> None:
        """Ask a job to leave; what else was asked of it, but for promises, does not count any more."""
        self._forget(name, "start", "grow", "shrink")
        self._change(name, phase="stopping")
        self._ask("stop", name, self.jobs[name].attempt, grace, (), beneficiary, purpose)

    def end(self, name: JobName) -> None:
        """It is over for good."""
        del self.jobs[name]
        self.intents = [intent for intent in self.intents if intent.job != name]
        self._reservations.pop(name, None)

    def wait_again(self, name: JobName, *, evicted: bool) -> None:
        """It holds nothing more and is back in its queue."""
        job = self.jobs[name]
        ran_ms = self.now - job.started_at if job.started_at is not None else 0
        self._forget(name, "start", "grow", "shrink", "stop")
        self._change(
            name,
            phase="pending",
            placement=(),
            started_at=None,
            time_limit=None,
            evicted_at=(*job.evicted_at, self.now) if evicted else job.evicted_at,
            served_gpu_ms=job.served_gpu_ms + sum(task.gpus for task in job.placement) * ran_ms // 1000,
        )

    def lose(self, node: NodeName) -> None:
        """It is there no more, and who had a task on it waits again."""
        del self.nodes[node]
        for job in list(self.jobs.values()):
            if any(task.node == node for task in job.placement):
                self.wait_again(job.name, evicted=False)

    def settle(self, passed: Duration) -> None:
        """Time has passed: a part of what was asked for is done, and jobs have come to their ends."""
        self.now = self.now.after(passed)
        for asked in list(self._repartitions.values()):
            if not maybe(self._chance, SLOW):
                self._partition_is_made(asked)
        for intent in list(self.intents):
            if intent in self.intents and not maybe(self._chance, SLOW):
                self._confirm(intent)
        for job in list(self.jobs.values()):
            if job.phase == "running" and self._is_over(job):
                self.end(job.name)

    def _partition_is_made(self, asked: Repartitioning) -> None:
        del self._repartitions[asked.device]
        node = self.nodes.get(asked.node)
        if node is not None:
            made = {gpu.id: msgspec.structs.replace(gpu, instances=asked.instances) for gpu in node.gpus}
            gpus = tuple(made[gpu.id] if gpu.id == asked.device else gpu for gpu in node.gpus)
            self.nodes[node.name] = msgspec.structs.replace(node, gpus=gpus)

    def _confirm(self, intent: Intent) -> None:
        match intent.kind:
            case "start" | "grow":
                self._confirm_begun(intent)
            case "shrink":
                self._forget(intent.job, "shrink", "grow")
                self._change(intent.job, placement=without(self.jobs[intent.job].placement, intent.tasks))
            case "stop" if intent.sends_back:
                self.wait_again(intent.job, evicted=intent.evicts)
            case "stop":
                self.end(intent.job)
            case "nominate":
                pass

    def _confirm_begun(self, intent: Intent) -> None:
        """Tasks begin only once what they are on is partitioned, and not where they were asked to leave again."""
        tasks = self.jobs[intent.job].placement if intent.kind == "start" else intent.tasks
        leaves = any(other.job == intent.job and other.kind == "shrink" for other in self.intents)
        if leaves or gpus_of(tasks) & self._repartitions.keys():
            return
        self.intents.remove(intent)
        if intent.kind == "start":
            self._change(intent.job, phase="running", started_at=self.now)

    def _is_over(self, job: Job) -> bool:
        """A service without a limit ends only by hand."""
        if job.started_at is None or (job.spec.type == "service" and job.time_limit is None):
            return False
        length = self._lengths[job.name]
        return self.now >= job.started_at + (length if job.time_limit is None else min(length, job.time_limit))
