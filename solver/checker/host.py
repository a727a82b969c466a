"""Judges evictions for CPU and memory: GPUs carry a share of both, and what is held beyond that is borrowed.

Part of the checker; docs/host-resources.md has the rules. S4: which job leaves for which; S8: no job without GPUs leaves in vain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from solver.checker.case import JudgedPlan
from solver.checker.host_common import HostCommon
from solver.checker.host_fair import HostFairness, HostLoss, loss_of
from solver.model.cluster import Node, NodeName
from solver.model.parts import owner_of
from solver.model.shape import Shape
from solver.model.workload import Job, JobName, TaskPlacement
from solver.plan.plan import Evict, Shrink
from solver.plan.violation import Violation

Beside = tuple[int, int]
"""Milli-cores, and bytes."""


@dataclass(frozen=True)
class HostClaims:
    """What jobs of one plan hold, and are promised, of CPU and memory."""

    case: JudgedPlan

    def refusal(self, victim: Job, preemptor: Job) -> str:
        """Why a job may not leave, where the one for which it leaves has no GPUs; "": this says nothing against it."""
        if self._has_gpus(self.promised(preemptor.name)):
            return ""
        if self._has_gpus(victim.placement):
            return f"has GPUs, and is evicted for {preemptor.name}, which has none"
        if victim.spec.queue == preemptor.spec.queue:
            return ""
        is_due = preemptor.name in self.inside or self.common.is_claim(victim, preemptor)
        if not is_due and not self._fairness.may_take(preemptor):
            return f"is evicted for {preemptor.name} of another queue, which has no GPUs, and is guaranteed no CPU or memory"
        return ""

    def towards(self, standing: str, victim: Job, preemptor: Job) -> str:
        """Where a victim stands, once what it holds of CPU and memory is counted; `standing`: by its GPUs."""
        gang = self.case.jobs.get(owner_of(victim.name), victim)
        if not self._has_gpus(gang.placement):
            if victim.name in self.inside or self.common.keeps(victim.name, preemptor):
                return "inside"
            is_beside = self._fairness.divides or any(self._gpus_of(task.node) for task in gang.placement)
            return "borrowed" if is_beside else "inside"
        if standing != "inside" or self._exceeds(preemptor, self.promised(preemptor.name)):
            return standing
        known = self.case.lookup.class_of(victim)
        exceeds = self._exceeds(gang, gang.placement) and self._exceeds(victim, victim.placement)
        return "straddles" if exceeds and (known is None or known.preemptible) else standing

    def promised(self, name: JobName) -> tuple[TaskPlacement, ...]:
        """What a job is promised by the plan."""
        step = self.case.promises.get(name)
        return step.tasks if step else ()

    def findings(self, steps: Mapping[JobName, Evict | Shrink]) -> Iterator[Violation]:
        """Jobs that ask for more than their GPUs carry: what is beyond is free, or left by others than leave for them. And jobs
        without GPUs that are not inside their guarantees: what others leave for them is fair.
        """
        if taken := self._for_fair_shares(steps):
            yield from self._fairness.findings(taken, self.common.losses)
        for name, step in sorted(self.case.promises.items()):
            job = self.case.jobs.get(name)
            if job is None or not self._has_gpus(step.tasks) or not self._exceeds(job, step.tasks):
                continue
            given = [(self.case.parted.jobs[of], known) for of, known in steps.items() if known.beneficiary == name]
            gone = _added_up((left, left.placement) for left, _ in given if not self._has_gpus(left.placement))
            beyond = _added_up([(job, step.tasks)], self._beyond)
            for node in sorted(gone.keys() & beyond.keys()):
                others = _added_up(
                    (self.case.jobs[of], known.tasks) for of, known in self.case.promises.items() if of != name
                )
                # Without those that leave for it, and without the others that were promised something beside it.
                at_hand = zip(self._capacity(node), self._need[node], gone[node], others[node], strict=True)
                mine = _added_up([(job, step.tasks)])[node]
                free = [
                    has - need - left + more + own for (has, need, left, more), own in zip(at_hand, mine, strict=True)
                ]
                if any(more > max(0, left) for more, left in zip(beyond[node], free, strict=True)):
                    yield Violation("S4", name, f"takes more of {node} from jobs without GPUs than its GPUs carry")

    def _for_fair_shares(self, steps: Mapping[JobName, Evict | Shrink]) -> Mapping[JobName, list[HostLoss]]:
        """What leaves of other queues for jobs without GPUs beyond their guarantees."""
        found = defaultdict[JobName, list[HostLoss]](list)
        for name, step in steps.items():
            to = self.case.jobs.get(step.beneficiary) if step.beneficiary else None
            if to is None or to.name in self.inside or self._has_gpus(self.promised(to.name)):
                continue
            part = self.case.parted.jobs[name]
            if self.common.is_claim(part, to):
                continue
            if to.name in self.case.promises and part.spec.queue != to.spec.queue:
                found[to.name].append(loss_of(part))
        return found

    @cached_property
    def common(self) -> HostCommon:
        """What queues share, and who claims it."""
        return HostCommon(self.case, self._guaranteed, self.inside, self._in_line)

    @cached_property
    def _fairness(self) -> HostFairness:
        return HostFairness(self.case, self._guaranteed)

    @cached_property
    def _in_line(self) -> list[Job]:
        """Running jobs without GPUs, in parts, as they stand in line for guarantees."""
        running = [job for job in self.case.parted.jobs.values() if job.placement and not self._has_gpus(job.placement)]
        running = [job for job in running if not self._has_gpus(self.case.jobs[owner_of(job.name)].placement)]
        return sorted(running, key=self._place_in_line)

    def _beyond(self, job: Job, task: TaskPlacement) -> Beside:
        (cpu, memory), carried = _beside(job, task), self._carried(task)
        return max(0, cpu - carried[0]), max(0, memory - carried[1])

    @cached_property
    def inside(self) -> frozenset[JobName]:
        """Jobs without GPUs that lie inside what is guaranteed of CPU and memory at every level, each as a whole.

        In line stand first those that run, then those that are promised something.
        """
        guaranteed = self._guaranteed
        if not guaranteed:
            return frozenset()
        running = self._in_line
        promised = [self.case.jobs[name] for name in sorted(self.case.promises) if name in self.case.jobs]
        promised = [job for job in promised if not self._has_gpus(self.promised(job.name))]
        inside, left = {job.name for job in (*running, *promised)}, dict(guaranteed)
        queues = sorted(self.case.lookup.queues, key=lambda name: (-len(self.case.lookup.path(name)), name))
        for queue in queues:
            for job in (*running, *promised):
                if job.name in inside and queue in self.case.lookup.on_path(job.spec.queue):
                    tasks = job.placement or self.promised(job.name)
                    asked = [_beside(job, task) for task in tasks]
                    wanted = sum(cpu for cpu, _ in asked), sum(memory for _, memory in asked)
                    if all(not more or more <= has for more, has in zip(wanted, left[queue], strict=True)):
                        left[queue] = left[queue][0] - wanted[0], left[queue][1] - wanted[1]
                    else:
                        inside.discard(job.name)
        return frozenset(inside)

    @cached_property
    def _guaranteed(self) -> Mapping[str, Beside]:
        """By queue what it states of CPU and memory, else what those below it are guaranteed; empty where none states any."""
        queues, found = self.case.lookup.queues, dict[str, Beside]()
        if not any(entry.guaranteed is not None for queue in queues.values() for entry in queue.host_quota):
            return found
        for name in sorted(queues, key=lambda name: -len(self.case.lookup.path(name))):
            below = [found[child] for child, queue in queues.items() if queue.parent == name and child in found]
            stated = [queues[name].host_quota_for(resource) for resource in ("cpu", "memory")]
            cpu, memory = (
                sum(one[place] for one in below) if entry is None or entry.guaranteed is None else int(entry.guaranteed)
                for place, entry in enumerate(stated)
            )
            found[name] = cpu, memory
        return found

    def _place_in_line(self, job: Job) -> tuple[bool, int, int, str, str]:
        known = self.case.lookup.class_of(job)
        preemptible, value = (known.preemptible, known.value) if known else (True, 0)
        return preemptible, -value, job.started_at or 0, owner_of(job.name), job.name

    def _capacity(self, node: NodeName) -> Beside:
        known = self.case.ground.by_name.get(node)
        return (int(known.cpu), int(known.memory)) if known else (0, 0)

    @cached_property
    def _need(self) -> Mapping[NodeName, Beside]:
        """By node what stays there, was promised before, or is given by the plan."""
        leaving = self.case.parted.leaving | self.case.stopping
        staying = [
            (job, job.placement)
            for name, job in self.case.parted.jobs.items()
            if leaving.isdisjoint((name, owner_of(name)))
        ]
        given = [(self.case.jobs[step.job], step.tasks) for step in self.case.placing if step.job in self.case.jobs]
        renewed = {step.job for step in self.case.placing} | self.case.withdrawn
        before = [
            (self.case.jobs[name], tasks)
            for name, tasks in self.case.promised.items()
            if name in self.case.jobs and name not in renewed
        ]
        return _added_up((*staying, *given, *before))

    def _exceeds(self, job: Job, tasks: Iterable[TaskPlacement]) -> bool:
        """Whether tasks have more CPU or memory than their GPUs carry."""
        tasks = tuple(tasks)
        held, carried = [_beside(job, task) for task in tasks], [self._carried(task) for task in tasks]
        return any(sum(one[place] for one in held) > sum(one[place] for one in carried) for place in (0, 1))

    def _carried(self, task: TaskPlacement) -> Beside:
        cpu, memory = self.per_gpu.get(self._pool(task.node), (0, 0))
        milli = sum(self.case.ground.charge((task,)).values())
        return milli * cpu // 1000, milli * memory // 1000

    @cached_property
    def per_gpu(self) -> Mapping[str, Beside]:
        """By pool: what policy says that one GPU carries, else an equal part of all nodes that have some."""
        said = {known.pool: known for known in self.case.policy.scheduling.host_share}
        found, in_pool = dict[str, Beside](), defaultdict[str, list[Node]](list)
        for node in self.case.ground.nodes:
            if node.gpus:
                in_pool[node.pool].append(node)
        for pool, nodes in in_pool.items():
            gpus, known = sum(len(node.gpus) for node in nodes), said.get(pool)
            cpu = known.cpu if known else None
            memory = known.memory if known else None
            found[pool] = (
                int(sum(node.cpu for node in nodes) // gpus if cpu is None else cpu),
                int(sum(node.memory for node in nodes) // gpus if memory is None else memory),
            )
        return found

    def _pool(self, name: NodeName) -> str:
        node = self.case.ground.by_name.get(name)
        return node.pool if node else ""

    def _gpus_of(self, name: NodeName) -> int:
        node = self.case.ground.by_name.get(name)
        return len(node.gpus) if node else 0

    def _has_gpus(self, tasks: Iterable[TaskPlacement]) -> bool:
        return any(self.case.ground.charge(tasks).values())


def _beside(job: Job, task: TaskPlacement) -> Beside:
    shape = next((group.shape for group in job.spec.task_groups if group.name == task.group), Shape())
    return int(shape.cpu), int(shape.memory)


def _added_up(
    held: Iterable[tuple[Job, Iterable[TaskPlacement]]], of: Callable[[Job, TaskPlacement], Beside] = _beside
) -> Mapping[NodeName, Beside]:
    """By node what tasks have there."""
    found: defaultdict[NodeName, Beside] = defaultdict(lambda: (0, 0))
    for job, tasks in held:
        for task in tasks:
            cpu, memory = of(job, task)
            found[task.node] = (found[task.node][0] + cpu, found[task.node][1] + memory)
    return found
