"""What each queue's fair share is, by the checker's own arithmetic: demand, weights, and who keeps the odd GPU.

Part of the checker. Of each GPU type: guarantees first, as far as there is demand; then whole GPUs by weight among siblings that
want more, level by level; the GPUs that are too few to be divided as `_with_odd` says. The plan's verdicts say which jobs count as
demand. Where only a search for places could tell the demand, a type has no fair shares here, and nothing is judged by them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import NamedTuple

from solver.checker.case import JudgedPlan
from solver.checker.dues import Charged
from solver.checker.mig import PROFILES, SLICES
from solver.model.amounts import Amounts, unsaid
from solver.model.cluster import GpuType, Level, Node
from solver.model.quantities import MILLI_PER_GPU
from solver.model.shape import Shape
from solver.model.workload import GroupTopology, Job, QueueName, TaskGroup
from solver.plan.plan import Inadmissible
from solver.policy.tree import QuotaLine


@dataclass(frozen=True)
class FairDivision:
    """The fair shares of all queues. `own`: what queues hold by themselves when the round begins."""

    case: JudgedPlan
    own: Sequence[Charged]

    def of(self, gpu_type: GpuType) -> Mapping[QueueName, int] | None:
        """Milli-GPU of a type for each queue; None: they can't be told."""
        if gpu_type not in self._shares:
            wanted = None if gpu_type in self.case.lookup.lent_in_part else self._demand.of(gpu_type)
            self._shares[gpu_type] = None if wanted is None else self._divided(gpu_type, self._live[gpu_type], wanted)
        return self._shares[gpu_type]

    @cached_property
    def _shares(self) -> dict[GpuType, Mapping[QueueName, int] | None]:
        return {}

    @cached_property
    def _demand(self) -> _Demand:
        return _Demand(self.case)

    @cached_property
    def _live(self) -> Mapping[GpuType, int]:
        """What can be divided: healthy GPUs of nodes that are there, cordoned or not."""
        live = Counter[GpuType]()
        for node in self.case.ground.nodes:
            if node.gpus:
                live[node.gpu_type] += (
                    MILLI_PER_GPU * [gpu.healthy for gpu in node.gpus].count(True) if node.ready else 0
                )
        return live

    def _divided(
        self, gpu_type: GpuType, milli: int, wanted: Mapping[QueueName, int]
    ) -> Mapping[QueueName, int] | None:
        claims = self._claims(gpu_type, wanted)
        found: dict[QueueName, int] = {}
        given: dict[QueueName | None, int] = {None: milli}
        for above, children in self.case.lookup.siblings.items():
            shares = _shared_out(given.get(above, 0), [claims[name] for name in children])
            if shares is None:
                return None
            found |= shares
            for name in children:
                given[name] = shares[name]
        return found

    def _claims(self, gpu_type: GpuType, wanted: Mapping[QueueName, int]) -> dict[QueueName, _Claim]:
        """What each queue holds and wants. A leaf's demand is rounded up to whole GPUs; none is above a max."""
        lookup = self.case.lookup
        used = lookup.added_up(one for one in self.own if one[1] == gpu_type)
        demand = Counter[QueueName]()
        for queue in reversed(lookup.from_the_top):
            if queue.name not in lookup.parents:
                total = used[QuotaLine(queue.name, gpu_type)] + wanted.get(queue.name, 0)
                demand[queue.name] = -(-total // MILLI_PER_GPU) * MILLI_PER_GPU
            entry = queue.quota_for(gpu_type)
            if entry is not None and entry.max is not None:
                demand[queue.name] = min(demand[queue.name], entry.max)
            path = lookup.path(queue.name)
            if len(path) > 1:
                demand[path[1].name] += demand[queue.name]
        return {
            queue.name: _Claim(
                queue.name,
                self.case.guaranteed.get(QuotaLine(queue.name, gpu_type), 0),
                demand[queue.name],
                queue.weight,
                used[QuotaLine(queue.name, gpu_type)],
                self._turns.get(queue.name, (-inf, 0)),
            )
            for queue in lookup.from_the_top
        }

    @cached_property
    def _turns(self) -> dict[QueueName, tuple[float, int]]:
        """When each queue had a job started last, -inf where none was; and one submitted first of those that wait, else 0."""
        last, first = defaultdict[QueueName, float](lambda: -inf), dict[QueueName, int]()
        for job in self.case.snapshot.jobs:
            for above in self.case.lookup.on_path(job.spec.queue):
                if job.phase == "pending":
                    first[above] = min(job.submitted_at, first.get(above, job.submitted_at))
                elif job.started_at is not None:
                    last[above] = max(job.started_at, last[above])
        return {name: (last[name], first.get(name, 0)) for name in {*last, *first}}


@dataclass(frozen=True, slots=True)
class _Claim:
    """One of several queues side by side, in milli-GPU. `turn`: the one served longest ago, then the earliest job."""

    name: QueueName
    guaranteed: int
    demand: int
    weight: int
    used: int
    turn: tuple[float, int]


def _shared_out(milli: int, claims: Sequence[_Claim]) -> dict[QueueName, int] | None:
    """What each of them gets of what there is; None: a name would have to decide."""
    shares = {claim.name: min(claim.guaranteed, claim.demand) for claim in claims}
    hungry = [claim for claim in claims if shares[claim.name] < claim.demand]
    left = milli - sum(shares.values())
    while hungry and left >= MILLI_PER_GPU:
        gpus, weights = left // MILLI_PER_GPU, sum(claim.weight for claim in hungry)
        parts = {claim.name: divmod(gpus * claim.weight, weights) for claim in hungry} if weights else {}
        if not any(whole for whole, _ in parts.values()):
            return _with_odd(shares, hungry, parts, gpus) if weights else shares
        for claim in hungry:
            given = min(parts[claim.name][0] * MILLI_PER_GPU, claim.demand - shares[claim.name])
            shares[claim.name] += given
            left -= given
        hungry = [claim for claim in hungry if shares[claim.name] < claim.demand]
    return shares


def _with_odd(
    shares: dict[QueueName, int], hungry: Sequence[_Claim], parts: Mapping[QueueName, tuple[int, int]], gpus: int
) -> dict[QueueName, int] | None:
    """The rest, a GPU each: a queue that holds it keeps it; then the largest remainder, then the queue served longest ago."""
    ranked = sorted(
        (claim.used <= shares[claim.name], -parts[claim.name][1], claim.turn, claim.name) for claim in hungry
    )
    if gpus < len(ranked) and ranked[gpus - 1][:3] == ranked[gpus][:3]:
        return None
    demand = {claim.name: claim.demand for claim in hungry}
    return shares | {name: min(shares[name] + MILLI_PER_GPU, demand[name]) for *_, name in ranked[:gpus]}


class _Demand:
    """What waiting jobs want at their full size, by queue."""

    def __init__(self, case: JudgedPlan) -> None:
        self.case = case
        self._places: dict[_Asked, tuple[int, int]] = {}
        self._lowest: dict[tuple[QueueName, GpuType], tuple[int | None, int]] = {}
        self._nodes: dict[tuple[GpuType, Level | None], Counter[_Built]] = {}

    @cached_property
    def _competing(self) -> list[Job]:
        """Who could start one day, as the plan says, and neither is held back nor was promised anything."""
        case = self.case
        on_hold = {queue.name for queue in case.policy.queues if queue.stop_policy != "None"}
        out = {verdict.job for verdict in case.verdicts(Inadmissible)} | (case.promised.keys() - case.withdrawn)
        return [
            job
            for job in case.pending
            if job.name not in out and case.lookup.on_path(job.spec.queue).isdisjoint(on_hold)
        ]

    def of(self, gpu_type: GpuType) -> Mapping[QueueName, int] | None:
        """Milli-GPU of a type. A job counts for each type that it could have; None: whether it could have this one is unknown."""
        wanted = Counter[QueueName]()
        for job in self._competing:
            for group in job.spec.task_groups:
                wishes = group.shape.gpu_types
                if group.shape.uses_gpus and (not wishes or gpu_type in wishes):
                    could, cost = self._could(job, group, gpu_type), self._cost(group.shape, gpu_type)
                    if could is None or cost is None:
                        return None
                    wanted[job.spec.queue] += group.replicas * cost if could else 0
        return wanted

    def _could(self, job: Job, group: TaskGroup, gpu_type: GpuType) -> bool | None:
        """Whether it could have a type. The plan says that there is one that it could; None: it can't be told."""
        if len(job.spec.task_groups) == 1 == len(group.shape.gpu_types):
            return True
        asked = [known for known in job.spec.task_groups if known.shape.uses_gpus]
        if all(len(self._accepted(known.shape.gpu_types)) < 2 for known in asked):
            return True
        if len(job.spec.task_groups) > 1 or not self._is_plain(job):
            return None
        return self._could_have(job, group, gpu_type)

    def _accepted(self, wishes: Sequence[GpuType]) -> list[GpuType]:
        there = self.case.ground.capacity
        return [known for known in dict.fromkeys(wishes or there) if known in there]

    def _cost(self, shape: Shape, gpu_type: GpuType) -> int | None:
        """Milli-GPU of a task on a type; None: it is not known."""
        if shape.gpus:
            return shape.gpus * MILLI_PER_GPU
        if shape.mig is not None:
            models = {
                known.model for known in self.case.policy.mig if known.pool in self.case.ground.pools_of[gpu_type]
            }
            profiles = [PROFILES[model].get(shape.mig) for model in models]
            if len(profiles) != 1 or profiles[0] is None:
                return None
            return MILLI_PER_GPU * profiles[0].memory_slices // SLICES[models.pop()]
        if shape.is_shared and any(known.oversubscription != 1.0 for known in self.case.policy.sharing):
            return None
        if shape.gpu_memory is not None:
            least = self._memory.get(gpu_type, 0)
            return -(-MILLI_PER_GPU * shape.gpu_memory // least) if least else None
        return int(shape.cost)

    @cached_property
    def _memory(self) -> dict[GpuType, int]:
        """That of the smallest GPU of each type."""
        least: dict[GpuType, int] = {}
        for node, gpu in self.case.ground.gpus.values():
            least[node.gpu_type] = min(gpu.memory, least.get(node.gpu_type, gpu.memory))
        return least

    def _is_plain(self, job: Job) -> bool:
        """One group of whole GPUs that asks for nothing beside them but one domain for all of it."""
        topology, (group, *_) = job.spec.topology, job.spec.task_groups
        own = group.topology
        asks = (topology.group, topology.spread, topology.together, own != GroupTopology(), group.nodes, job.spec.data)
        return not any(asks) and group.shape.gpus > 0

    def _could_have(self, job: Job, group: TaskGroup, gpu_type: GpuType) -> bool | None:
        """Whether limits and guarantees on its path, and the nodes of a type, were they empty, leave it room for its least size."""
        known, need = self.case.lookup.class_of(job), group.least * group.shape.gpus * MILLI_PER_GPU
        most, guaranteed = self._limits(job.spec.queue, gpu_type)
        if most is not None and most < need:
            return False
        if known is not None and not known.preemptible and not known.may_borrow and guaranteed < need:
            return False
        level = job.spec.effective_topology.required if job.spec.topology.required else None
        surely, perhaps = self._tasks_that_fit(
            _Asked(
                gpu_type, level, group.shape.gpus, int(group.shape.cpu), int(group.shape.memory), group.shape.resources
            )
        )
        return None if surely < group.least <= perhaps else perhaps >= group.least

    def _limits(self, queue: QueueName, gpu_type: GpuType) -> tuple[int | None, int]:
        """The lowest limit on a queue's path, None where there is none, and the lowest guarantee."""
        key = queue, gpu_type
        if key not in self._lowest:
            entries = [known.quota_for(gpu_type) for known in self.case.lookup.path(queue)]
            limits = [limit for entry in entries if entry for limit in (entry.max, entry.per_user) if limit is not None]
            lines = self.case.lookup.lines(queue, gpu_type)
            self._lowest[key] = (
                min(limits, default=None),
                min((self.case.guaranteed.get(line, 0) for line in lines), default=0),
            )
        return self._lowest[key]

    def _tasks_that_fit(self, asked: _Asked) -> tuple[int, int]:
        """How many tasks the best domain holds when it is empty: on GPUs that are whole now, and on all."""
        if asked not in self._places:
            surely, perhaps = Counter[str](), Counter[str]()
            for (domain, whole, gpus, cpu, memory, others), nodes in self._alike(asked.gpu_type, asked.level).items():
                beside = [have // need for have, need in ((cpu, asked.cpu), (memory, asked.memory)) if need]
                beside += [others.get(name, unsaid(name)) // need for name, need in asked.resources.items()]
                surely[domain] += nodes * min([whole // asked.gpus, *beside])
                perhaps[domain] += nodes * min([gpus // asked.gpus, *beside])
            self._places[asked] = max(surely.values(), default=0), max(perhaps.values(), default=0)
        return self._places[asked]

    def _alike(self, gpu_type: GpuType, level: Level | None) -> Counter[_Built]:
        """Nodes of a type that are built alike, in each domain."""
        key = gpu_type, level
        if key not in self._nodes:
            self._nodes[key] = Counter(
                (node.domain(level) if level else "", whole, len(node.gpus), node.cpu, node.memory, node.resources)
                for node, whole in self._of_type.get(gpu_type, ())
            )
        return self._nodes[key]

    @cached_property
    def _of_type(self) -> Mapping[GpuType, Sequence[tuple[Node, int]]]:
        """Nodes by type, each with how many of its GPUs are whole."""
        found = defaultdict[GpuType, list[tuple[Node, int]]](list)
        for node in self.case.ground.nodes:
            if node.gpus:
                found[node.gpu_type].append((node, [gpu.instances for gpu in node.gpus].count(None)))
        return found


_Built = tuple[str, int, int, int, int, Amounts]
"""A domain, and of a node how many GPUs are whole, all GPUs, CPU, memory, and what else it has."""


class _Asked(NamedTuple):
    """What decides how many tasks of a job find places together."""

    gpu_type: GpuType
    level: Level | None
    gpus: int
    cpu: int
    memory: int
    resources: Amounts
