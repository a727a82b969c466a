"""Jobs that wait though they need not: beside what is free, or beside what others would have to give back.

Part of the checker. Each is a finding and no violation: acting on the plan harms nobody else. It accuses only where plain counts
leave no doubt, and says nothing of jobs of several groups, bundles, spreads, sets of nodes, parts of GPUs, strict queues, and of
types that are lent in part.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from solver.checker.case import JudgedPlan
from solver.checker.dues import charged_to
from solver.checker.end_state import EndState, FreeHost, slots_on
from solver.checker.fair_division import FairDivision
from solver.checker.lenders import Lender, Lenders
from solver.checker.protection import too_early
from solver.checker.turns import ordering_for
from solver.model.amounts import AmountsLeft
from solver.model.cluster import GpuType, Level, NodeName
from solver.model.parts import shrinking_apart
from solver.model.quantities import MILLI_PER_GPU, MilliGpu
from solver.model.shape import Shape
from solver.model.workload import GroupTopology, Job, QueueName
from solver.plan.plan import Bind, Grow, Waits
from solver.plan.reasons import Protected
from solver.plan.violation import Violation
from solver.policy.policy import PriorityClass
from solver.policy.tree import QuotaLine

SEARCHED_MAX = 64
"""Jobs for which it is asked who could leave for them."""

BACK_OFF_MAX_MS = 3_600_000
"""So long a job that was evicted often borrows nothing, if the policy's own back-off is no longer."""

ABOUT = 1.07
"""Between two sets of jobs with about as many GPUs their order may decide."""


def shortfalls(case: JudgedPlan, state: EndState) -> Iterator[Violation]:
    """Every job that waits and need not, alike ones once."""
    yield from _Shortfalls(case, state).findings()


class _Asked(NamedTuple):
    """One way to serve a job that waits: on one type of GPU, at its least size."""

    job: Job
    known: PriorityClass
    gpu_type: GpuType
    shape: Shape
    tasks: int

    @property
    def milli(self) -> int:
        """What its queue would be charged."""
        return self.tasks * self.shape.gpus * MILLI_PER_GPU

    @property
    def queue(self) -> QueueName:
        """Its queue."""
        return self.job.spec.queue

    @property
    def level(self) -> Level | None:
        """That of which all its tasks have to be in one domain; None: they may be anywhere."""
        return self.job.spec.effective_topology.required


@dataclass
class _Shortfalls:
    case: JudgedPlan
    state: EndState
    searched: int = 0

    def findings(self) -> Iterator[Violation]:
        """Beside free GPUs, then beside those that others could give up."""
        for asked in self._waiting():
            yield from self._of_waiting(asked)
        for asked in self._small():
            if self._may_search() and self._others_could_leave(asked, "guarantee"):
                told = f"{asked.tasks} more tasks lie inside the guarantee of {asked.queue}"
                yield Violation("lent", asked.job.name, f"stays small beside work that could leave for it: {told}")

    def _of_waiting(self, asked: _Asked) -> Iterator[Violation]:
        right, name = self._right(asked), asked.job.name
        told = f"{MilliGpu(asked.milli)} {asked.gpu_type} for it are inside the {right or 'guarantee'} of {asked.queue}"
        if right and self._fits(asked, self._hosts_for(right)):
            yield Violation("idle", name, f"waits beside free GPUs: {told}")
        elif right in ("guarantee", "fair share") and self._may_search():
            if self._others_could_leave(asked, right):
                yield Violation("lent", name, f"waits beside work that could leave for it: {told}")
            elif right == "guarantee" and self._is_kept_by_protections_alone(asked):
                yield Violation("hidden", name, "waits for the end of protections, and its verdict does not say so")
        elif not right and (instead := self._starts_in_the_place_of(asked)):
            names = ", ".join(step.job for step in instead)
            yield Violation("fewer", name, f"waits, and {names} starts with fewer GPUs in its place: {told}")

    def _may_search(self) -> bool:
        self.searched += 1
        return self.searched <= SEARCHED_MAX

    # Who waits.

    def _small(self) -> Iterator[_Asked]:
        """Running gangs that lack tasks where the plan does nothing: else growth may come in the next round.

        Of queues in which nobody waits: minima come first.
        """
        if self.case.placing or self.case.leaving or self.case.steps(Grow) or self._is_any_early:
            return
        changing = {intent.job for intent in self.case.intents} | self.case.for_growth
        behind = {verdict.queue for verdict in self.case.verdicts(Waits)}
        for job in self.case.snapshot.jobs:
            known = self.case.lookup.class_of(job)
            if job.phase != "running" or job.name in changing or job.spec.queue in behind or known is None:
                continue
            (group, *_) = job.spec.task_groups
            if len(job.placement) < group.replicas and known.preemptible and self._is_plain(job):
                types = {self.case.ground.gpu_types.get(task.node) for task in job.placement}
                gpu_type = types.pop() if len(types) == 1 and not job.spec.topology.required else None
                if gpu_type and gpu_type not in self.case.lookup.lent_in_part:
                    lines = self.case.lookup.lines(job.spec.queue, gpu_type)
                    left = min(self.state.inside.left(line) for line in lines) // (group.shape.gpus * MILLI_PER_GPU)
                    more = min(left, group.replicas - len(job.placement))
                    asked = _Asked(job, known, gpu_type, group.shape, more - more % group.replica_step)
                    if asked.tasks > 0 and self._is_below_limits(asked):
                        yield asked

    @cached_property
    def _is_any_early(self) -> bool:
        """Whether a job has to wait before others leave for it: none leaves for growth then that it would have the place of."""
        return any(map(self._is_early, self.case.pending))

    def _is_early(self, job: Job) -> bool:
        """Whether it waits, and others do not leave for it yet."""
        known, path = self.case.lookup.class_of(job), self.case.lookup.path(job.spec.queue)
        return (
            job.phase == "pending" and known is not None and bool(too_early(job, known, path, self.case.snapshot.time))
        )

    def _waiting(self) -> Iterator[_Asked]:
        waits = {verdict.job for verdict in self.case.verdicts(Waits)}
        settled = self.case.promises.keys() | self.case.promised.keys()
        jobs = [job for job in self.case.pending if job.name in waits and job.name not in settled]
        highest = dict[QueueName, int]()
        for job in jobs:
            if known := self.case.lookup.class_of(job):
                highest[job.spec.queue] = max(known.value, highest.get(job.spec.queue, known.value))
        judged = set[Hashable]()
        for job in jobs:
            known = self.case.lookup.class_of(job)
            # A lower one might have to leave for a higher one that waits, as soon as it has started.
            if known is None or known.value < highest[job.spec.queue] or not self._is_plain(job):
                continue
            key = job.spec.queue, known.name, job.spec.task_groups, job.spec.topology, self._rests(job)
            if key not in judged:
                judged.add(key)
                yield from self._ways(job, known)

    def _is_plain(self, job: Job) -> bool:
        path, ordering = self.case.lookup.path(job.spec.queue), ordering_for(self.case.lookup, job.spec.queue)
        is_open = bool(path) and all(queue.stop_policy == "None" for queue in path)
        return is_plain(job) and is_open and not ordering.strict and ordering.turns is None

    def _ways(self, job: Job, known: PriorityClass) -> Iterator[_Asked]:
        """On its first type, and on the others once they are open to it."""
        (group,) = job.spec.task_groups
        wishes, there = group.shape.gpu_types, self.case.ground.capacity
        after = next(
            (said for said in (job.spec.fallback_after, known.fallback_after) if said is not None),
            self.case.policy.scheduling.fallback_after,
        )
        types = [known_type for known_type in wishes or there if known_type in there]
        is_early = bool(wishes) and self.case.snapshot.time < job.submitted_at + after
        for gpu_type in types[:1] if is_early else types:
            asked = _Asked(job, known, gpu_type, group.shape, group.least)
            if gpu_type not in self.case.lookup.lent_in_part and self._is_below_limits(asked):
                yield asked

    def _is_below_limits(self, asked: _Asked) -> bool:
        if self.case.lookup.limits_host(asked.queue):
            return False
        for queue in self.case.lookup.path(asked.queue):
            entry = queue.quota_for(asked.gpu_type)
            held = self.state.used[QuotaLine(queue.name, asked.gpu_type)]
            if entry and (entry.per_user is not None or (entry.max is not None and held + asked.milli > entry.max)):
                return False
        return True

    def _rests(self, job: Job) -> bool:
        """It was evicted a moment ago, and borrows nothing for a while."""
        if not job.evicted_at:
            return False
        first = back_off = int(self.case.policy.scheduling.evictions.back_off)
        for _ in job.evicted_at[1:]:
            back_off = max(first, min(2 * back_off, BACK_OFF_MAX_MS))
        return bool(self.case.snapshot.time < job.evicted_at[-1] + back_off)

    # By what right.

    def _right(self, asked: _Asked) -> str:
        """Inside what all that it asks for would lie, beside all that is held then; "" where it is not sure to."""
        lines, known = self.case.lookup.lines(asked.queue, asked.gpu_type), asked.known
        ledgers = (self.state.inside, self.state.beside_leaving)
        if all(ledger.left(line) >= asked.milli for line in lines for ledger in ledgers):
            return "guarantee"
        if not known.preemptible and not known.may_borrow:
            return "guarantee for what is not preemptible" if self._is_inside_firmly(asked, lines) else ""
        fair = None if self._rests(asked.job) else self._fair(asked.gpu_type)
        if fair is None or any(self.state.used[line] + asked.milli > fair.get(line.queue, 0) for line in lines):
            return ""
        return "fair share"

    def _is_inside_firmly(self, asked: _Asked, lines: Iterable[QuotaLine]) -> bool:
        return all(self.state.firm.left(line) >= asked.milli for line in lines)

    def _fair(self, gpu_type: GpuType) -> Mapping[QueueName, int] | None:
        """Fair shares, where the plan changes nothing by which they could be others afterwards."""
        return self._division.of(gpu_type) if self._division is not None else None

    @cached_property
    def _division(self) -> FairDivision | None:
        if self.case.placing or self.case.leaving or self.case.withdrawn:
            return None
        return FairDivision(self.case, [*charged_to(shrinking_apart(self.case.snapshot), self.case.ground.gpu_types)])

    # On what is free.

    def _hosts_for(self, right: str) -> Mapping[NodeName, FreeHost]:
        """What lies inside a guarantee comes before what starts beyond."""
        if right == "fair share":
            return self.state.hosts if self._alone else {}
        return self._without_those_beyond

    @cached_property
    def _alone(self) -> bool:
        """Nobody else waits who might take back what a job is given inside its fair share."""
        return len({verdict.queue for verdict in self.case.verdicts(Waits)}) < 2

    @cached_property
    def _without_those_beyond(self) -> Mapping[NodeName, FreeHost]:
        """What would be free, did nobody start who is not inside its guarantee even by itself."""
        return self._hosts_without([step for step in self.case.steps(Bind) if self._is_beyond(step)])

    def _hosts_without(self, starts: Sequence[Bind]) -> Mapping[NodeName, FreeHost]:
        """What would be free, did these not start."""
        if not starts:
            return self.state.hosts
        hosts = {
            name: FreeHost(host.node, host.gpus, host.cpu, host.memory, AmountsLeft(host.others))
            for name, host in self.state.hosts.items()
        }
        for step in starts:
            shapes = {group.name: group.shape for group in self.case.jobs[step.job].spec.task_groups}
            for task in step.tasks:
                host = hosts.get(task.node)
                if host is not None and task.share is None and task.mig is None:
                    host.gpus += len(task.devices)
                    host.cpu += shapes[task.group].cpu
                    host.memory += shapes[task.group].memory
                    host.others.take(shapes[task.group].resources, -1)
        return hosts

    def _is_beyond(self, step: Bind) -> bool:
        """It starts, and was promised nothing; nor is it ahead of lower work of its queue, or not preemptible."""
        job = self.case.jobs[step.job]
        known = self.case.lookup.class_of(job)
        if step.job in self.case.promised or known is None or not known.preemptible:
            return False
        # Of its own value there may be newer work behind it.
        by_age = any(queue.preempt_within for queue in self.case.lookup.path(job.spec.queue))
        if known.value > self._lowest.get(job.spec.queue, known.value) or by_age:
            return False
        return any(
            milli > self.state.before.left(line)
            for gpu_type, milli in self.case.given(step).items()
            for line in self.case.lookup.lines(job.spec.queue, gpu_type)
        )

    @cached_property
    def _lowest(self) -> Mapping[QueueName, int]:
        """The lowest value that runs in each queue."""
        lowest = dict[QueueName, int]()
        for job, _ in self.state.held:
            if known := self.case.lookup.class_of(job):
                lowest[job.spec.queue] = min(known.value, lowest.get(job.spec.queue, known.value))
        return lowest

    def _fits(self, asked: _Asked, hosts: Mapping[NodeName, FreeHost]) -> bool:
        if hosts is self.state.hosts:
            free = self.state.slots(asked.shape, asked.gpu_type, asked.level)
        else:
            free = slots_on(hosts.values(), asked.shape, asked.gpu_type, asked.level)
        return max(free.values(), default=0) >= asked.tasks

    # In the place of smaller ones of its queue.

    def _starts_in_the_place_of(self, asked: _Asked) -> Sequence[Bind]:
        """Jobs of its queue and class that start, without which it would lie inside its guarantee and could: () if there are none.

        They have fewer GPUs than it all together, whatever their order.
        """
        starts = [
            step for step in self._own_starts.get((asked.queue, asked.known.name), ()) if step.job != asked.job.name
        ]
        charges = [self.case.given(step) for step in starts]
        milli = sum(charge.get(asked.gpu_type, 0) for charge in charges)
        alike = all(charge.keys() == {asked.gpu_type} for charge in charges)
        smaller = alike and 0 < ABOUT * milli < asked.milli and self._may_search()
        return starts if smaller and self._could_start_without(asked, starts) else ()

    @cached_property
    def _own_starts(self) -> Mapping[tuple[QueueName, str], Sequence[Bind]]:
        """What starts, and was promised nothing, by queue and class."""
        found = defaultdict[tuple[QueueName, str], list[Bind]](list)
        for step in self.case.steps(Bind):
            job = self.case.jobs[step.job]
            known = self.case.lookup.class_of(job)
            if step.job not in self.case.promised and known is not None and is_plain(job):
                found[job.spec.queue, known.name].append(step)
        return found

    def _could_start_without(self, asked: _Asked, starts: Sequence[Bind]) -> bool:
        """Whether a job would lie inside its guarantee, and start on what is free or others give up, did these not start."""
        milli = sum(self.case.given(step)[asked.gpu_type] for step in starts)
        lines = self.case.lookup.lines(asked.queue, asked.gpu_type)
        for ledger in (self.state.inside, self.state.beside_leaving):
            ledger.add(asked.queue, asked.gpu_type, -milli)
            inside = all(ledger.left(line) >= asked.milli for line in lines)
            ledger.add(asked.queue, asked.gpu_type, milli)
            if not inside:
                return False
        hosts = self._hosts_without(starts)
        return self._fits(asked, hosts) or self._others_could_leave(asked, "guarantee", hosts=hosts)

    # On what others give up.

    def _is_kept_by_protections_alone(self, asked: _Asked) -> bool:
        """Whether others could leave for it but for what protects them, and its verdict does not say so."""
        told = {
            known.job for known in self.case.verdicts(Waits) if any(isinstance(r, Protected) for r in known.reasons)
        }
        # A gang is asked once: what it has left when others who wait have had of it is not looked into.
        is_told = asked.job.name in told or (bool(told) and self._is_early(asked.job))
        return not is_told and self._others_could_leave(asked, "guarantee", lifted=True)

    def _others_could_leave(
        self, asked: _Asked, right: str, *, hosts: Mapping[NodeName, FreeHost] | None = None, lifted: bool = False
    ) -> bool:
        """Whether enough leaves GPU for GPU: of what others borrowed, for a fair share of queues that keep theirs.

        `lifted`: as if nothing protected anybody. `hosts`: what is free, where it is not what the plan leaves.
        """
        limits, overdue = self.case.policy.scheduling.evictions, self._is_overdue(asked)
        overdue &= asked.job.phase == "pending"
        overdue |= lifted
        is_early = not (overdue and right == "guarantee") and self._is_early(asked.job)
        if not lifted and (is_early or limits.min_gain > 1 or (limits.per_round is not None and not overdue)):
            return False
        may = self._givers(asked) if right == "fair share" else None
        if right == "fair share" and self._reclaim_mode(asked.queue) == "guaranteed":
            return False

        def lend(node: NodeName) -> Iterator[Lender]:
            for one in self._lenders.on(node, asked.queue, asked.gpu_type):
                is_free = not one.protected or (overdue and may is None)
                if is_free and (may is None or (one.preemptible and one.queue in may)):
                    yield one

        missing = defaultdict[str, int](lambda: asked.tasks)
        if hosts is None:
            hosts, slots = self.state.hosts, self.state.slots(asked.shape, asked.gpu_type, asked.level)
        else:
            slots = slots_on(hosts.values(), asked.shape, asked.gpu_type, asked.level)
        for domain, there in slots.items():
            missing[domain] -= there
        beside = self._beside_gpus(asked, overdue=overdue) if right == "guarantee" else {}
        for name in sorted((self._lenders.nodes(asked.queue, asked.gpu_type) | beside.keys()) & hosts.keys()):
            host, lenders, more = hosts[name], list(lend(name)), beside.get(name, (0, 0))
            domain = host.node.domain(asked.level) if asked.level else ""
            able = missing[domain] > 0 and (lenders or any(more))
            opened = _opened(host, asked.shape, lenders, more, missing[domain]) if able else 0
            missing[domain] -= opened
            # A gang that grows takes what there is.
            if opened and (missing[domain] <= 0 or asked.job.phase == "running"):
                return True
        return False

    def _beside_gpus(self, asked: _Asked, *, overdue: bool) -> Mapping[NodeName, tuple[int, int]]:
        """By node of the type the CPU and memory that work without GPUs would leave to it: no more is asked for than GPUs carry."""
        found: dict[NodeName, tuple[int, int]] = {}
        if asked.job.phase != "pending" or not (asked.shape.cpu or asked.shape.memory):
            return found
        for node, lenders in self._lenders.without_gpus.items():
            known = self.case.ground.by_name[node]
            cpu, memory = (each * asked.shape.gpus for each in self._lenders.host.per_gpu.get(known.pool, (0, 0)))
            if known.gpu_type == asked.gpu_type and asked.shape.cpu <= cpu and asked.shape.memory <= memory:
                free_to = [one for one in lenders if one.queue != asked.queue and (overdue or not one.protected)]
                found[node] = sum(one.cpu for one in free_to), sum(one.memory for one in free_to)
        return found

    @cached_property
    def _lenders(self) -> Lenders:
        return Lenders(self.case, self.state.standing)

    def _givers(self, asked: _Asked) -> frozenset[QueueName]:
        """Queues that have all that a job asks for to spare, and so have those above them that it does not share with them."""
        fair, shared = self._fair(asked.gpu_type) or {}, self.case.lookup.on_path(asked.queue)
        return frozenset(
            queue.name
            for queue in self.case.policy.queues
            if next((known.reclaimed_for for known in self.case.lookup.path(queue.name) if known.reclaimed_for), "")
            != "guaranteed"
            and all(
                self.state.used[line] - fair.get(line.queue, 0) >= asked.milli
                for line in self.case.lookup.lines(queue.name, asked.gpu_type)
                if line.queue not in shared
            )
        )

    def _is_overdue(self, asked: _Asked) -> bool:
        said = (queue.reclaim_within for queue in self.case.lookup.path(asked.queue))
        within = next((limit for limit in said if limit is not None), self.case.policy.scheduling.reclaim_within)
        return self.case.snapshot.time - asked.job.submitted_at >= within

    def _reclaim_mode(self, queue: QueueName) -> str:
        said = (known.reclaim for known in self.case.lookup.path(queue))
        return next((mode for mode in said if mode), self.case.policy.scheduling.reclaim)


def is_plain(job: Job) -> bool:
    """One group of whole GPUs that asks for nothing of where it is but one domain for all of it."""
    topology, (group, *others) = job.spec.topology, job.spec.task_groups
    own = group.topology
    asks = (topology.group, topology.spread, topology.together, own != GroupTopology(), group.nodes, others)
    return not any(asks) and group.shape.gpus > 0


def _opened(host: FreeHost, shape: Shape, lenders: Sequence[Lender], beside: tuple[int, int], most: int) -> int:
    """For how many more tasks, up to so many, a node has room once some of these have left: no more GPUs than the tasks get.

    `beside`: CPU and memory that is left as well. Of all else no more is counted than is free: rather too little.
    """
    now = max(0, host.slots(shape))
    sums: dict[int, tuple[int, int]] = {0: (0, 0)}
    for one in lenders:
        for gpus, (cpu, memory) in list(sums.items()):
            if gpus + one.gpus <= most * shape.gpus:
                sums.setdefault(gpus + one.gpus, (cpu + one.cpu, memory + one.memory))
    best = 0
    for gpus, (cpu, memory) in sums.items():
        after = FreeHost(
            host.node, host.gpus + gpus, host.cpu + cpu + beside[0], host.memory + memory + beside[1], host.others
        ).slots(shape)
        more = min(after - now, most)
        if more > best and gpus <= more * shape.gpus:
            best = more
    return best
