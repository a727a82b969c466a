"""Why a job waits: typed, with numbers in fields; words are made from them at the end.

The codes are stable: programs and alert rules key on them. docs/reasons.md explains each.
"""

from __future__ import annotations

from typing import Literal

from solver.model.amounts import NONE, Amounts, in_words, is_port, port_in_words
from solver.model.cluster import GpuType, Level, SpreadLevel
from solver.model.document import Document
from solver.model.inflight import declared_name
from solver.model.quantities import Cpu, Instant, Memory, MilliGpu
from solver.model.workload import JobName, QueueName
from solver.plan.mig_reasons import MigGeometryReason, MigHasNoPeers
from solver.plan.reason import HostResource, Reason, among, at, beside_gpus, count, gpus_each, too_little_in_one
from solver.plan.refusals import (
    AboveMax,
    ClassNotAllowed,
    GpuTooSmall,
    NamespaceNotAllowed,
    NeverFits,
    NotDivided,
    UnknownName,
)
from solver.policy.ordering import OrderBy


class QuotaMax(Reason, frozen=True, tag="quota-max"):
    """A queue on the job's path would go above its max; with a `user`, that user above what one may hold there.

    `used` is the queue's use, or that user's in it. With `kept_back`, another queue does not lend that many GPUs: then `max` is
    what there is of the type, and `used` what of it is in use or kept back from the job's queue. With a `resource` the numbers are
    cores, or GiB of memory, and there is no type. `with_gpus`, `with_guarantee`: it is not so now, but will be once so many GPUs
    more are there, or the guarantee of that queue is as large as the job needs: guarantees grow with either, and so does what is
    kept back of them.
    """

    queue: QueueName
    gpu_type: GpuType
    max: MilliGpu
    used: MilliGpu
    wanted: MilliGpu
    origin: str = ""
    user: str | None = None
    kept_back: MilliGpu | None = None
    resource: HostResource | None = None
    with_gpus: MilliGpu = MilliGpu(0)
    with_guarantee: QueueName | None = None

    @property
    def unit(self) -> str:
        """What the numbers count."""
        return {"cpu": "cores", "memory": "GiB of memory"}[self.resource] if self.resource else self.gpu_type

    @property
    def to_lend(self) -> MilliGpu:
        """How much more the queue that keeps something back has to lend: all of that, at most."""
        return MilliGpu(max(0, min(self.used + self.wanted - self.max, self.kept_back or 0)))

    @property
    def is_ahead(self) -> bool:
        """Whether this binds only once something else that the job waits for has come."""
        return bool(self.with_gpus or self.with_guarantee)

    @property
    def once(self) -> str:
        """What has to come before this binds."""
        added = f"{self.with_gpus} {self.gpu_type} more" if self.with_gpus else ""
        raised = f"a larger guarantee of queue {self.with_guarantee}" if self.with_guarantee else ""
        return " and ".join(filter(None, (added, raised)))

    def __str__(self) -> str:
        if self.kept_back is not None:
            does_not = f"with {self.once} queue {self.queue} will not" if self.once else f"queue {self.queue} does not"
            kept = f"{does_not} lend {self.kept_back} {self.unit}{at(self.origin)}"
            used = f"{self.used} of {self.max} {'will be' if self.once else 'are'} in use or kept back"
            return f"{kept}: {used}; this job needs {self.wanted}"
        if self.user is not None and self.wanted > self.max:
            cap = f"one user may never hold more than {self.max} in queue {self.queue}{at(self.origin)}"
            return f"needs {self.wanted} {self.unit}; {cap}"
        if self.user is not None:
            cap = f"at most {self.max} {self.unit} per user in queue {self.queue}{at(self.origin)}"
            return f"user {self.user or '(none)'} holds {self.used} of {cap}; this job needs {self.wanted}"
        held = f"holds {self.used} of max {self.max} {self.unit}{at(self.origin)}"
        return f"queue {self.queue} {held}; this job needs {self.wanted}"


class QuotaChanges(Reason, frozen=True, tag="quota-changes"):
    """From `at` on the quota of a queue on the job's path is another, and has room for it, inside guarantees if it is `guaranteed`.

    `now`, `then`: that quota before and after; None: no max. `hours`: the windows that are open then; (): what the queue says
    outside of them. `refused`: until then the job can't start at all, however much is free.
    """

    queue: QueueName
    gpu_type: GpuType
    at: Instant
    what: Literal["guaranteed", "max"]
    now: MilliGpu | None = None
    then: MilliGpu | None = None
    hours: tuple[str, ...] = ()
    origin: str = ""
    refused: bool = False

    def __str__(self) -> str:
        before, after = ("none" if milli is None else str(milli) for milli in (self.now, self.then))
        hours = f"; hours {', '.join(self.hours)}" if self.hours else ""
        changes = f"the quota of queue {self.queue} changes at {self.at}: {self.what} {after} {self.gpu_type} in place of {before}"
        until = "; the job can't start before" if self.refused else ""
        return f"{changes}{hours}{at(self.origin)}{until}"


class StrictOrder(Reason, frozen=True, tag="strict-order"):
    """The job's queue is strict, and one that comes before it there waits for what this one would take. `by`: its order."""

    queue: QueueName
    by: OrderBy
    first: JobName

    def __str__(self) -> str:
        return f"queue {self.queue} serves strictly by {self.by}: {self.first} comes first and waits"


class UserShare(Reason, frozen=True, tag="user-share"):
    """Other users that share the job's queue come first: its own holds its fair share or more, or has had more than they by weight.

    `of`: what the `users` that hold or ask for GPUs of the type divide. `before`: what its user has held on average, where it is
    that which puts it behind.
    """

    queue: QueueName
    gpu_type: GpuType
    user: str
    held: MilliGpu
    of: MilliGpu
    fair_share: MilliGpu
    users: int
    before: MilliGpu | None = None
    origin: str = ""

    def __str__(self) -> str:
        holds = f"user {self.user or '(none)'} holds {self.held} of {self.of} {self.gpu_type} of queue {self.queue}"
        among = f"among {'the 1 user' if self.users == 1 else f'{self.users} users'} that ask{at(self.origin)}"
        if self.before is not None:
            return f"{holds} and held {self.before} on average, by weight more than others {among}: these come first"
        share = f"beyond its fair share of {self.fair_share}" if self.held > self.fair_share else "its fair share"
        return f"{holds}, {share} {among}"


class HeldReason(Reason, frozen=True, tag="held"):
    """A queue on the job's path starts no more jobs."""

    queue: QueueName
    origin: str = ""

    def __str__(self) -> str:
        return f"queue {self.queue} is on hold{at(self.origin)} and starts no jobs"


class CapacityReason(Reason, frozen=True, tag="capacity"):
    """Fewer GPUs of the type are free than the gang needs, on the nodes of a `node_set` where it is limited to that."""

    gpu_type: GpuType
    free: MilliGpu
    wanted: MilliGpu
    node_set: str = ""
    nodes_allowed: int = 0

    def __str__(self) -> str:
        return f"needs {self.wanted} {self.gpu_type}, {self.free} free{among(self.node_set, self.nodes_allowed)}"


class NoRoomReason(Reason, frozen=True, tag="no-room"):
    """Enough GPUs are free, but scattered: too few nodes, or too few of a `node_set`, can take a task of this shape.

    `devices`: the GPUs of which each task wants a part; 1: it does not want parts of several.
    """

    group: str
    gpu_type: GpuType
    tasks: int
    gpus_per_task: MilliGpu
    tasks_that_fit: int
    node_set: str = ""
    nodes_allowed: int = 0
    devices: int = 1

    @property
    def each(self) -> str:
        """What one task asks for."""
        return gpus_each(self.gpus_per_task, self.gpu_type, self.devices)

    def __str__(self) -> str:
        wanted = f"group {self.group} needs room for {self.tasks} x {self.each}"
        there = f"room for {self.tasks_that_fit}{among(self.node_set, self.nodes_allowed)}"
        return f"{wanted}, {there}: the free GPUs are scattered"


class ScarceResource(Document, frozen=True):
    """Another resource of nodes than CPU and memory: network cards, disk, places for pods, a port.

    `wanted`: what one task takes of it. `free`: what is left of it on the nodes that would do; of a port, on how many it is free.
    """

    name: str
    wanted: int
    free: int

    @property
    def left(self) -> str:
        """`2 rdma/hca`, or `1 node with port 80 (TCP)`."""
        if is_port(self.name):
            return f"{count(self.free, 'node')} with {port_in_words(self.name)}"
        return in_words(self.name, self.free)


class HostResources(Reason, frozen=True, tag="host-resources"):
    """GPUs would do, but CPU, memory or another resource beside them does not, on the nodes of a `node_set` if limited to one.

    `lacking`: of which of the two there is too little even by itself; (): of none, but nowhere is there enough of both, and of
    the other `resources` that it asks for. `resource`: it is not these two that are lacking, but that one.
    `cpu_carried`, `memory_carried`: of a job inside its guarantee that asks for more than its GPUs carry, what they carry for each
    task: for what is beyond no job leaves.
    """

    group: str
    gpu_type: GpuType
    cpu: Cpu
    memory: Memory
    tasks: int
    tasks_that_fit: int
    node_set: str = ""
    nodes_allowed: int = 0
    lacking: tuple[HostResource, ...] = ()
    cpu_carried: Cpu | None = None
    memory_carried: Memory | None = None
    resources: Amounts = NONE
    resource: ScarceResource | None = None

    def __str__(self) -> str:
        where = among(self.node_set, self.nodes_allowed) or (f" on {self.gpu_type} nodes" if self.gpu_type else "")
        beside = "beside each task's GPUs" if self.gpu_type else "for each task"
        short = {"cpu": "CPU", "memory": "memory"}
        together = "of all together" if self.resources else "of both together"
        what = " and too little ".join(short[name] for name in self.lacking) or together
        fit = f"{self.tasks_that_fit} of {self.tasks} tasks fit{where}"
        if self.resource:
            needs = f"group {self.group} needs {in_words(self.resource.name, self.resource.wanted)} for each task"
            where = where if self.node_set or not is_port(self.resource.name) else ""
            return f"{needs}; {self.resource.left} free{where}: {self.tasks_that_fit} of {self.tasks} tasks fit"
        others = "".join(f" and {in_words(name, amount)}" for name, amount in self.resources.items())
        needs = f"group {self.group} needs {beside_gpus(self.cpu, self.memory)}{others} {beside}"
        if self.cpu_carried is None or self.memory_carried is None:
            return f"{needs}; too little {what} is free: {fit}"
        carried = beside_gpus(self.cpu_carried, self.memory_carried)
        return f"{needs}, which carry {carried}, and no job leaves for more; too little {what} is free: {fit}"


class Topology(Reason, frozen=True, tag="topology"):
    """No single domain of the required level has room for the whole gang; or for `groups`, where these have to be together.

    Of groups that are in units it needs so many `units`, and there is room for `units_that_fit`; `wanted` is what one needs.
    """

    level: Level
    wanted: MilliGpu
    best_domain: str
    best_free: MilliGpu
    groups: tuple[str, ...] = ()
    units: int = 0
    units_that_fit: int = 0

    def __str__(self) -> str:
        if self.units:
            units, gpus = count(self.units, "unit"), count(self.wanted.number, "GPU")
            needed = f"it needs {units} of groups {' and '.join(self.groups)} with {gpus} each"
            return f"{needed}, every unit in one {self.level}; there is room for {self.units_that_fit}"
        told = too_little_in_one(self.level, self.wanted, self.best_domain, self.best_free)
        return f"for groups {' and '.join(self.groups)} together it {told}" if self.groups else told


class Bundles(Reason, frozen=True, tag="bundles"):
    """There is room for the tasks, but not for as many bundles of them in one domain each."""

    group: str
    level: Level
    tasks: int
    per_bundle: int
    tasks_that_fit: int

    def __str__(self) -> str:
        wanted = f"group {self.group} needs {count(self.tasks, 'task')} with each {self.per_bundle} in one {self.level}"
        return f"{wanted}; there is room for {self.tasks_that_fit}"


class TooClose(Reason, frozen=True, tag="spread"):
    """There is room for the tasks, but only closer together than the job's spread allows."""

    group: str
    level: SpreadLevel
    max_per_domain: int
    tasks: int
    tasks_that_fit: int

    def __str__(self) -> str:
        wanted = f"group {self.group} needs {count(self.tasks, 'task')} with at most {self.max_per_domain} in each {self.level}"
        return f"{wanted}; there is room for {self.tasks_that_fit}"


class ReservedFor(Reason, frozen=True, tag="reserved-for"):
    """It would fit now, but might still run at the instant from which what it would use is held for another gang.

    Or for a Reservation document, which does not let it in: then `until` when, and its place in Git. Without either: nodes that
    came for another job alone.
    """

    holder: JobName
    start: Instant
    gpus: MilliGpu
    until: Instant | None = None
    origin: str = ""

    def __str__(self) -> str:
        document = declared_name(self.holder)
        if document is not None:
            kept = f"Reservation {document}{at(self.origin)} holds {count(self.gpus.number, 'GPU')} for others"
            until = f" until {self.until}" if self.until is not None else ""
            return f"{kept} from {self.start}{until}; it would not end before that"
        held = f"{count(self.gpus.number, 'GPU')} {'is' if self.gpus.number == 1 else 'are'} held"
        return f"would not end before {self.start}, from when {held} for {self.holder}"


class Outranked(Reason, frozen=True, tag="outranked"):
    """It would fit now, but jobs that come before it start in this round and take the room."""

    ahead: tuple[JobName, ...]
    more: int = 0

    def __str__(self) -> str:
        rest = f" and {self.more} more" if self.more else ""
        return f"jobs that come before it take the room: {', '.join(self.ahead)}{rest}"


class AwaitsRelease(Reason, frozen=True, tag="awaits-release"):
    """The devices it will have are decided; these jobs, which hold some of them, have been asked to leave or to shrink.

    `budget`: the PodDisruptionBudgets that don't let one of them go now.
    """

    leaving: tuple[JobName, ...]
    more: int = 0
    budget: str = ""

    def __str__(self) -> str:
        rest = f" and {self.more} more" if self.more else ""
        held = f", which {self.budget} does not allow now" if self.budget else ""
        have = "has" if len(self.leaving) + self.more == 1 else "have"
        return f"starts once {', '.join(self.leaving)}{rest} {have} made room{held}"


class BeyondGuarantee(Reason, frozen=True, tag="beyond-guarantee"):
    """It may start only inside its guarantee, and does not fit there: it is not preemptible, or was evicted lately."""

    queue: QueueName
    gpu_type: GpuType
    room: MilliGpu
    wanted: MilliGpu
    until: Instant | None = None
    origin: str = ""

    def __str__(self) -> str:
        left = f"queue {self.queue} has {self.room} {self.gpu_type} left of its guarantee{at(self.origin)}"
        why = (
            f"evicted lately, it borrows nothing until {self.until}"
            if self.until
            else "it is not preemptible and may not borrow"
        )
        return f"{left}, this job needs {self.wanted}: {why}"


class FallbackLater(Reason, frozen=True, tag="fallback-later"):
    """GPU types further down its wish list are not open to it yet, and of theirs too few are left of its guarantee."""

    first: tuple[GpuType, ...]
    then: tuple[GpuType, ...]
    until: Instant

    def __str__(self) -> str:
        return f"waits for {' and '.join(self.first)} until {self.until}, then for {' and '.join(self.then)} too"


class EntitledDemandFirst(Reason, frozen=True, tag="entitled-demand-first"):
    """Other queues' work inside their guarantees holds so much that what is left is too little.

    It may wait for as long as those use what is theirs. `left`: GPUs of the type that such work does not hold.
    """

    queue: QueueName
    gpu_type: GpuType
    left: MilliGpu
    wanted: MilliGpu

    def __str__(self) -> str:
        needs = f"needs {self.wanted} {self.gpu_type}, more than the guarantee of queue {self.queue}"
        return f"{needs}; other queues' work inside theirs leaves {self.left}"


class GuaranteeFragmented(Reason, frozen=True, tag="guarantee-fragmented"):
    """It lies inside its queue's guarantee, and enough is there, but not in the shape it needs: a guarantee is a count."""

    queue: QueueName
    gpu_type: GpuType
    room: MilliGpu
    wanted: MilliGpu

    def __str__(self) -> str:
        left = f"queue {self.queue} has {self.room} {self.gpu_type} left of its guarantee"
        return f"{left}, this job needs {self.wanted} of them in a shape that is not free: a guarantee is a count"


ProtectedBy = Literal[
    "minRuntime",
    "coolDown",
    "evictionsPerDay",
    "preemptAfter",
    "preemptWithin",
    "reclaimedFor",
    "minGain",
    "perRound",
    "disruptionBudget",
]
"""The field of the policy that protects a job; disruptionBudget: a PodDisruptionBudget of Kubernetes, which is not in it.
preemptAfter: all are protected from a job that has not waited for so long. preemptWithin: `never`; reclaimedFor: `guaranteed`."""


class Protected(Reason, frozen=True, tag="protected"):
    """It may have what others hold, and these may not be evicted yet: `job` is the one that is protected the longest.

    `until`: from then on it may be; None: nobody knows. Where the waiting job is inside its guarantee that is no later than its
    reclaimWithin. `priority_class`: of the job that is protected. `more`: how many others the same protects. `budget`: of a
    PodDisruptionBudget, which one. Of preemptAfter, `priority_class` or `queue` is what has the waiting job wait; of preemptWithin
    and reclaimedFor, `queue` is that of the job that is protected.
    """

    by: ProtectedBy
    job: JobName
    priority_class: str = ""
    until: Instant | None = None
    origin: str = ""
    more: int = 0
    budget: str = ""
    queue: str = ""

    def __str__(self) -> str:
        others = f" and {count(self.more, 'other')}" if self.more else ""
        would, where = f"evicting {self.job}{others} would make room, and", at(self.origin)
        until = f" until {self.until}" if self.until is not None else ""
        match self.by:
            case "minGain":
                ends = f"; that counts{until}" if until else ""
                return f"{would} give up more GPUs than minGain{where} allows{ends}"
            case "preemptAfter":
                whose = f"queue {self.queue}" if self.queue else f"class {self.priority_class}"
                return f"{would} preemptAfter of {whose}{where} has this job wait first{until}"
            case "preemptWithin":
                return f"{would} preemptWithin of queue {self.queue}{where} is never"
            case "reclaimedFor":
                return f"{would} reclaimedFor of queue {self.queue}{where} is guaranteed: not for fair shares"
            case "perRound":
                return f"{would} perRound{where} allows no more evictions{until}"
            case "disruptionBudget":
                ends = f"; it holds{until} at the latest" if until else ""
                return f"{would} {self.budget or 'a PodDisruptionBudget'} does not allow it now{ends}"
            case _:
                of_class = f" of class {self.priority_class}" if self.priority_class else ""
                them = "them" if self.more else "it"
                return f"{would} {self.by}{of_class}{where} protects {them}{until or ' for as long as it runs'}"


class RoundCutShort(Reason, frozen=True, tag="round-cut-short"):
    """It fits and nothing outranks it: the round ran out of its budget before it found the place."""

    stage: str

    def __str__(self) -> str:
        return f"the round was decided by {self.stage} before a place was found; the next round tries again"


AnyReason = (
    QuotaMax
    | QuotaChanges
    | StrictOrder
    | UserShare
    | HeldReason
    | CapacityReason
    | NoRoomReason
    | HostResources
    | Topology
    | Bundles
    | TooClose
    | ReservedFor
    | Outranked
    | AwaitsRelease
    | BeyondGuarantee
    | FallbackLater
    | EntitledDemandFirst
    | GuaranteeFragmented
    | Protected
    | RoundCutShort
    | UnknownName
    | ClassNotAllowed
    | NamespaceNotAllowed
    | NotDivided
    | GpuTooSmall
    | MigHasNoPeers
    | MigGeometryReason
    | AboveMax
    | NeverFits
)
