"""The compiled policy: every document of one revision as frozen, sorted data."""

from __future__ import annotations

from functools import cached_property
from typing import Literal

import msgspec

from solver.model.cluster import GpuType
from solver.model.document import Document, digest
from solver.model.quantities import Duration, Instant, Memory, MilliGpu
from solver.model.workload import (
    INTERACTIVE_TIME_LIMIT,
    Job,
    JobName,
    KubernetesNamespace,
    PlacementStyle,
    QueueName,
)
from solver.policy.division import MigGeometry, SharingPolicy
from solver.policy.guardrails import Guardrails
from solver.policy.harm import Convergence, Evictions, Protection
from solver.policy.host_share import HostQuota, HostShare, Resource, resource_of
from solver.policy.images import ImagePolicy
from solver.policy.node_requests import Provisioning
from solver.policy.ordering import Ordering
from solver.policy.repeat import Repeat
from solver.policy.reservation import DeclaredReservation
from solver.policy.type_weights import GpuTypeWeight, by_name
from solver.policy.user_shares import UserShares

SloClass = Literal["latency-critical", "standard", "preemptible"]
SLO_CLASSES: tuple[SloClass, ...] = ("latency-critical", "standard", "preemptible")
"""In the order in which entitled demand is served."""
Scope = Literal["queue", "cluster"]
"""Where a priority value compares: among the jobs of one queue, or with those of scope cluster in all queues too."""
StopPolicy = Literal["None", "Hold", "HoldAndDrain"]
"""Whether a queue lets jobs start: `Hold` starts no more; what runs stays. `HoldAndDrain` has it leave as well."""
GpuNodesFor = Literal["all-jobs", "gpu-jobs"]
"""Whose tasks may be on nodes that have GPUs: everybody's, or those of jobs that ask for some."""
Reclaim = Literal["guaranteed", "fair-share"]
"""For what a queue may take back borrowed work of others: demand inside its guarantee, or inside its fair share as well."""


PreemptWithin = Literal["never", "lower-priority", "lower-or-newer"]
"""Which running jobs leave for a waiting one of the same queue: none; those of lower value; those of its value, too, that were
submitted later.
"""


class Quota(Document, frozen=True):
    """What a queue may hold of one GPU type.

    `guaranteed` unset is the weighted share of what the parent has not given to other children; an explicit 0 is none.
    `max` unset is no ceiling, `per_user` unset no ceiling for a single user. `lendable` is the most of `guaranteed` that others
    may borrow; unset: all of it. `shared`: what is guaranteed here is claimed by any queue below, beyond its own guarantee too.
    `origin` is the place in Git (`file:line`), for messages only.
    """

    gpu_type: GpuType
    guaranteed: MilliGpu | None = None
    max: MilliGpu | None = None
    per_user: MilliGpu | None = None
    lendable: MilliGpu | None = None
    origin: str = ""
    shared: bool = False


class QuotaRow(Document, frozen=True):
    """What holds of one GPU type in place of a Quota's fields; None: as that says."""

    gpu_type: GpuType
    guaranteed: MilliGpu | None = None
    max: MilliGpu | None = None
    per_user: MilliGpu | None = None
    lendable: MilliGpu | None = None
    origin: str = ""
    shared: bool | None = None


class QuotaHours(Document, frozen=True):
    """Windows that come again, in which a queue has another quota: what `quota` and `weight` say holds while one is open.

    A row takes the place of that of the same GPU type, field by field; what is unset stays as the queue says it.
    """

    name: str
    start: Instant = msgspec.field(name="from")
    repeat: Repeat
    quota: tuple[QuotaRow, ...] = ()
    weight: int | None = None
    origin: str = ""


class QuotaChange(Document, frozen=True):
    """What a queue is to have from an instant on: all its rows and its weight. `hours`: the windows that are open then."""

    at: Instant
    quota: tuple[Quota, ...]
    weight: int
    hours: tuple[str, ...] = ()


UnlistedNamespaces = Literal["allowed", "refused"]
"""Whether namespaces that no queue lists may use the queues that list none."""


class NamespaceSelector(Document, frozen=True):
    """Namespaces that have all of these labels, as a `namespaceSelector` of Kueue says it."""

    match_labels: dict[str, str]

    @property
    def pairs(self) -> tuple[str, ...]:
        """Each as KEY=VALUE, sorted."""
        return tuple(sorted(f"{key}={value}" for key, value in self.match_labels.items()))


class NamespaceAccess(Document, frozen=True):
    """Kubernetes namespaces that may use a queue and those below it: `name` is that of one, or `vision-*` for all that begin so.

    `selector` in its place: all that have these labels. `priority_classes` unset lets in any class that the queue takes. `default`:
    pods of theirs that name no queue are of this one. `local_queues`: what they may call it beside its own name. `origin` is the
    place in Git, for messages only.
    """

    name: str = ""
    priority_classes: tuple[str, ...] | None = None
    default: bool = False
    local_queues: tuple[str, ...] = ()
    origin: str = ""
    selector: NamespaceSelector | None = None

    def covers(self, namespace: KubernetesNamespace) -> bool:
        """Whether a namespace is meant."""
        if self.selector is not None:
            return set(self.selector.pairs) <= set(namespace.labels)
        return namespace.name.startswith(self.name[:-1]) if self.name.endswith("*") else namespace.name == self.name

    @property
    def title(self) -> str:
        """Its name, or its labels, as messages call it."""
        return self.name if self.selector is None else ",".join(self.selector.pairs)

    @property
    def closeness(self) -> tuple[int, int, str]:
        """Of several the largest is the closest: the namespace's own name, then most labels, then the longest beginning."""
        if self.selector is not None:
            return 1, len(self.selector.match_labels), self.title
        return (0, len(self.name), "") if self.name.endswith("*") else (2, 0, "")


class QueueAccess(Document, frozen=True):
    """The submitters and admins of a queue: subjects such as `group:vision`; and the namespaces, which rounds alone read."""

    submitters: tuple[str, ...] = ()
    admins: tuple[str, ...] = ()
    namespaces: tuple[NamespaceAccess, ...] = ()


class Queue(Document, frozen=True):
    """One node of the quota tree. Jobs are submitted to leaves. `priority_classes` unset lets in any class.

    `reclaim` and `reclaim_within` unset are what the queue above says, at the top the SchedulingPolicy. `ordering` unset is that
    of the queue above; a root's is by priority, not strict. `convergence` unset is what the queue above says, at the top the
    SchedulingPolicy. `host_quota`: what it may hold of CPU and memory. `preempt_after`: how long its jobs wait before others leave
    for them, unless their class says so; unset: as the queue above says, at the top not at all. `preempt_within`: which jobs of
    the queue leave for others of it; unset: as the queue above says, at the top those of lower value. `reclaimed_for`: for what
    others take back what it holds above its guarantee; unset: as the queue above says, at the top for fair shares too.
    `reclaim_below`: its jobs take what others hold above their fair shares, where that is of a value below this and below theirs;
    unset: as the queue above says, at the top nothing. `pools`: the only pools that its jobs, and those below it, may be on;
    unset: any that the queue above may use. `users`: whether its users share it fairly; unset: as the queue above says, at the top
    they do not. `hours`: windows in which its quota is another. In a policy as it stands at an instant
    (policy/windows) there are none, `quota` and `weight` are what they come to, `in_hours` which of them are open, and `ahead` what
    the quota is to be.
    """

    name: QueueName
    parent: QueueName | None = None
    quota: tuple[Quota, ...] = ()
    weight: int = 1
    stop_policy: StopPolicy = "None"
    priority_classes: tuple[str, ...] | None = None
    reclaim: Reclaim | None = None
    reclaim_within: Duration | None = None
    ordering: Ordering | None = None
    convergence: Convergence | None = None
    access: QueueAccess = QueueAccess()
    origin: str = ""
    host_quota: tuple[HostQuota, ...] = ()
    pools: tuple[str, ...] | None = None
    preempt_after: Duration | None = None
    preempt_within: PreemptWithin | None = None
    reclaimed_for: Reclaim | None = None
    reclaim_below: int | None = None
    users: UserShares | None = None
    hours: tuple[QuotaHours, ...] = ()
    ahead: tuple[QuotaChange, ...] = ()
    in_hours: tuple[str, ...] = ()

    def host_quota_for(self, resource: Resource) -> HostQuota | None:
        """The entry for CPU or memory, if there is one."""
        return next((entry for entry in self.host_quota if resource_of(entry) == resource), None)

    def quota_for(self, gpu_type: GpuType) -> Quota | None:
        """The entry for a type, if there is one."""
        return next((entry for entry in self.quota if entry.gpu_type == gpu_type), None)


class PriorityClass(Document, frozen=True):
    """`value` orders jobs inside a queue, and by its `scope` across queues (queueing/ranks); the SLO class orders entitled demand.

    A job that is not `preemptible` starts only inside guarantees, or anywhere where its class `may_borrow`; what such a
    job borrows can be taken back.

    `aging_per_hour`: bands of order that a job moves up for each hour it waits.
    `default_time_limit` holds for jobs that state none of their own, and so do `fallback_after` (None: what the policy says),
    `placement` (None: replicas of services are spread, gangs packed) and, of interactive jobs, `idle_limit` (None: none).
    `pools`: the only pools that jobs of the class may be on; None: any that their queue may use.
    `preempt_after`: how long jobs of the class wait before others leave for them; None: what their queue says.
    `start_within`: jobs that are expected to start later are refused at submission, which no round reads; None: none is.
    """

    name: str
    value: int = 0
    slo_class: SloClass = "standard"
    aging_per_hour: float = 0.0
    default_time_limit: Duration | None = None
    fallback_after: Duration | None = None
    placement: PlacementStyle | None = None
    preemptible: bool = True
    may_borrow: bool = False
    scope: Scope = "queue"
    protection: Protection = Protection()
    origin: str = ""
    idle_limit: Duration | None = None
    pools: tuple[str, ...] | None = None
    preempt_after: Duration | None = None
    start_within: Duration | None = None


SolverMode = Literal["production", "exact"]


class SolverLimits(Document, frozen=True):
    """How hard a round tries. `gap` is the relative gap at which a layer counts as solved (0: proven optimal).

    `mode`: exact leaves out what keeps a production round fast, and tries every placement where the program's is in doubt.
    """

    mode: SolverMode = "production"
    gap: float = 0.0
    time_limit: Duration = Duration(10_000)
    seed: int = 0


class Reservations(Document, frozen=True):
    """For how many gangs that can't start devices are kept, on each GPU type; 0: for none."""

    per_gpu_type: int = 1


class TaskLogs(Document, frozen=True):
    """What the log of each task may have on disk, in an attempt."""

    max_per_task: Memory = Memory(2**30)


class GpuPeak(Document, frozen=True):
    """What a GPU of a type can do at most: 10^12 floating point operations a second, as jobs count theirs."""

    gpu_type: GpuType
    tflops: float


class GpuUseRecords(Document, frozen=True):
    """How often GPUs are asked what they do, and for how long what came of it is kept, by minutes, hours and days.

    `peaks`: what MFU is measured by, where that is to be something else than what is known of a type.
    """

    sample_every: Duration = Duration(5_000)
    keep_minutes: Duration = Duration(2 * 86_400_000)
    keep_hours: Duration = Duration(90 * 86_400_000)
    keep_days: Duration = Duration(1_830 * 86_400_000)
    peaks: tuple[GpuPeak, ...] = ()


class SchedulingPolicy(Document, frozen=True):
    """The settings of the whole cluster; a repository has one.

    `eta_horizon`: how far ahead earliest starts are looked for, for the first `estimated_jobs` that wait.
    `reclaim_within`: how long protections and the limit of evictions per round may delay work inside a guarantee.
    `fallback_after`: how long jobs wait for their first GPU type before they take another.
    `duration_quantile`: jobs without a limit are expected to run as long as this part of earlier ones; 0: nothing is expected.
    `gpu_types`: what a GPU of each type weighs beside others; a type that is missing weighs 1 (policy/type_weights).
    `keep_rounds`: for how long the record of a round is kept; None: for ever. `keep_placements`: for how long it is known after
    its end what a job held of which nodes. `logs`: how large logs of tasks get.
    `usage_half_life`: after how long half of what a queue has held is forgotten; None: the past does not count.
    `host_share`: what a GPU carries of CPU and memory, for pools where that is not an equal part (policy/host_share).
    `gpu_nodes_for`: which jobs may be on nodes that have GPUs. `unlisted_namespaces`: what holds for those that no queue lists.
    `gpu_use`: what is kept of what GPUs do. `provisioning`: how nodes are asked of an autoscaler; None: they are not.
    """

    default_priority_class: str = ""
    start_deadline: Duration = Duration(300_000)
    eta_horizon: Duration = Duration(7 * 86_400_000)
    estimated_jobs: int = 100
    reservations: Reservations = Reservations()
    reclaim: Reclaim = "fair-share"
    reclaim_within: Duration = Duration(3_600_000)
    evictions: Evictions = Evictions()
    guardrails: Guardrails = Guardrails()
    images: ImagePolicy = ImagePolicy()
    fallback_after: Duration = Duration(0)
    gpu_types: tuple[GpuTypeWeight, ...] = ()
    convergence: Convergence = Convergence()
    usage_half_life: Duration | None = None
    keep_rounds: Duration | None = None
    logs: TaskLogs = TaskLogs()
    duration_quantile: float = 0.9
    solver: SolverLimits = SolverLimits()
    origin: str = ""
    host_share: tuple[HostShare, ...] = ()
    gpu_nodes_for: GpuNodesFor = "all-jobs"
    keep_placements: Duration = Duration(400 * 86_400_000)
    unlisted_namespaces: UnlistedNamespaces = "allowed"
    gpu_use: GpuUseRecords = GpuUseRecords()
    provisioning: Provisioning | None = None


class Policy(Document, frozen=True, omit_defaults=False, dict=True, gc=True):
    """What Git wants, compiled. Build it with `policy_of`."""

    queues: tuple[Queue, ...]
    priority_classes: tuple[PriorityClass, ...]
    scheduling: SchedulingPolicy = SchedulingPolicy()
    sharing: tuple[SharingPolicy, ...] = ()
    mig: tuple[MigGeometry, ...] = ()
    reservations: tuple[DeclaredReservation, ...] = ()

    @cached_property
    def digest(self) -> str:
        """Names the policy by its meaning for rounds: where a line stands in a file, which users may submit, what a change may
        do, and in which images jobs run do not count."""
        return digest(_without_origins(self))

    @property
    def goes_by_history(self) -> bool:
        """Whether rounds need to know how long jobs that have ended ran."""
        return any(queue.ordering is not None and queue.ordering.by == "gittins" for queue in self.queues)

    @property
    def takes_turns(self) -> bool:
        """Whether the mere passing of time may end a job's turn."""
        return any(queue.ordering is not None and queue.ordering.turns is not None for queue in self.queues)

    @cached_property
    def delays_preemption(self) -> bool:
        """Whether any queue or class has jobs wait before others leave for them."""
        queues, classes = self.queues, self.priority_classes
        return any(queue.preempt_after for queue in queues) or any(known.preempt_after for known in classes)

    @cached_property
    def repeats(self) -> bool:
        """Whether any document repeats, so that the policy of a round depends on its time (policy/windows)."""
        return any(known.repeat is not None for known in self.reservations) or bool(self.quota_edges)

    @cached_property
    def quota_edges(self) -> tuple[Instant, ...]:
        """When windows of quota begin and end, in order."""
        windows = (window for queue in self.queues for hours in queue.hours for window in hours.repeat.windows)
        return tuple(sorted({at for window in windows for at in (window.start, window.until)}))

    @cached_property
    def quota_changes(self) -> tuple[Instant, ...]:
        """The same, and when the quota is another of a policy that stands at an instant, in order."""
        return tuple(sorted({*self.quota_edges, *(change.at for queue in self.queues for change in queue.ahead)}))

    @cached_property
    def standing(self) -> dict[tuple[int, ...], Policy]:
        """What it came to lately, by how many windows were over, or had begun (policy/windows)."""
        return {}

    def queue(self, name: str) -> Queue | None:
        """The queue of that name."""
        return next((queue for queue in self.queues if queue.name == name), None)

    def reservation(self, holder: JobName) -> DeclaredReservation | None:
        """The document for which something is kept."""
        return self._by_holder.get(holder)

    @cached_property
    def _by_holder(self) -> dict[JobName, DeclaredReservation]:
        return {known.holder: known for known in self.reservations}

    def priority_class_name(self, job: Job) -> str:
        """The class a job names, else the policy's default; "" where there is neither."""
        return job.spec.priority_class or self.scheduling.default_priority_class

    def priority_class(self, job: Job) -> PriorityClass | None:
        """The class a job runs under: its own, else the policy's default; None where it names one that does not exist."""
        name = self.priority_class_name(job)
        if not name:
            return PriorityClass("")
        return self._classes.get(name)

    def is_firm(self, job: Job) -> bool:
        """Whether nothing may evict a job for others: its class is not preemptible."""
        known = self.priority_class(job)
        return known is not None and not known.preemptible

    @cached_property
    def _classes(self) -> dict[str, PriorityClass]:
        return {known.name: known for known in reversed(self.priority_classes)}

    def grace(self, job: Job) -> Duration:
        """How long a job has between being asked to leave and having to be gone: what its checkpoint takes, else the policy's."""
        asked = job.spec.checkpoint.grace if job.spec.checkpoint else None
        return self.scheduling.evictions.grace if asked is None else asked

    def time_limit(self, job: Job) -> Duration | None:
        """The limit under which a job starts: its own, else its class's, but not of a service; None: it may run for ever."""
        if job.spec.time_limit is not None or job.spec.type == "service":
            return job.spec.time_limit
        known = self.priority_class(job)
        limit = known.default_time_limit if known else None
        return INTERACTIVE_TIME_LIMIT if limit is None and job.spec.type == "interactive" else limit

    def idle_limit(self, job: Job) -> Duration | None:
        """How long a job may do nothing: its own limit, else its class's, of interactive jobs alone; None: as long as it likes."""
        known = self.priority_class(job)
        limit = job.spec.idle_limit or (known.idle_limit if known else None)
        return limit if job.spec.type == "interactive" else None


def policy_of(
    queues: tuple[Queue, ...],
    priority_classes: tuple[PriorityClass, ...] = (),
    scheduling: SchedulingPolicy = SchedulingPolicy(),
    sharing: tuple[SharingPolicy, ...] = (),
    mig: tuple[MigGeometry, ...] = (),
    reservations: tuple[DeclaredReservation, ...] = (),
) -> Policy:
    """Sort documents into a policy. Whether they make sense together is checked where documents are read."""
    return Policy(
        tuple(sorted((_sorted_inside(queue) for queue in queues), key=lambda queue: queue.name)),
        tuple(sorted(map(_class_sorted_inside, priority_classes), key=lambda known: known.name)),
        msgspec.structs.replace(
            scheduling,
            gpu_types=by_name(scheduling.gpu_types),
            gpu_use=msgspec.structs.replace(
                scheduling.gpu_use, peaks=tuple(sorted(scheduling.gpu_use.peaks, key=lambda known: known.gpu_type))
            ),
            host_share=tuple(sorted(scheduling.host_share, key=lambda known: known.pool)),
        ),
        tuple(sorted((_sorted_lists(known) for known in sharing), key=lambda known: known.name)),
        tuple(sorted(mig, key=lambda known: known.name)),
        tuple(sorted((_sorted_names(known) for known in reservations), key=lambda known: known.name)),
    )


def _sorted_lists(sharing: SharingPolicy) -> SharingPolicy:
    groups = (msgspec.structs.replace(group, queues=tuple(sorted(group.queues))) for group in sharing.trust_domains)
    return msgspec.structs.replace(
        sharing,
        pools=tuple(sorted(sharing.pools)),
        trust_domains=tuple(sorted(groups, key=lambda group: group.name)),
    )


def _sorted_names(reservation: DeclaredReservation) -> DeclaredReservation:
    users, nodes = reservation.users, reservation.nodes
    return msgspec.structs.replace(
        reservation,
        users=None if users is None else tuple(sorted(users)),
        nodes=None if nodes is None else tuple(sorted(nodes)),
    )


def _class_sorted_inside(known: PriorityClass) -> PriorityClass:
    return msgspec.structs.replace(known, pools=None if known.pools is None else tuple(sorted(known.pools)))


def _sorted_inside(queue: Queue) -> Queue:
    classes = queue.priority_classes
    return msgspec.structs.replace(
        queue,
        quota=tuple(sorted(queue.quota, key=lambda entry: entry.gpu_type)),
        hours=tuple(sorted(map(_hours_sorted_inside, queue.hours), key=lambda known: known.name)),
        host_quota=tuple(sorted(queue.host_quota, key=resource_of)),
        pools=None if queue.pools is None else tuple(sorted(queue.pools)),
        priority_classes=None if classes is None else tuple(sorted(classes)),
        access=QueueAccess(
            tuple(sorted(queue.access.submitters)),
            tuple(sorted(queue.access.admins)),
            tuple(sorted(map(_namespace_sorted_inside, queue.access.namespaces), key=lambda entry: entry.title)),
        ),
    )


def _hours_sorted_inside(hours: QuotaHours) -> QuotaHours:
    return msgspec.structs.replace(hours, quota=tuple(sorted(hours.quota, key=lambda entry: entry.gpu_type)))


def _namespace_sorted_inside(entry: NamespaceAccess) -> NamespaceAccess:
    classes = entry.priority_classes
    return msgspec.structs.replace(
        entry,
        priority_classes=None if classes is None else tuple(sorted(classes)),
        local_queues=tuple(sorted(entry.local_queues)),
    )


_UNREAD_BY_ROUNDS = {
    "guardrails": Guardrails(),
    "images": ImagePolicy(),
    "keep_rounds": None,
    # The very defaults, which are left out of what is digested: a policy of before these fields were there keeps its digest.
    "logs": SchedulingPolicy().logs,
    "keep_placements": SchedulingPolicy().keep_placements,
    "gpu_use": SchedulingPolicy().gpu_use,
    "provisioning": None,
}


def _without_origins(policy: Policy) -> Policy:
    def bare(document: Document) -> Document:
        # One without a place stays the very same: a default is left out of what is digested.
        return msgspec.structs.replace(document, origin="") if getattr(document, "origin", "") else document

    classes = (msgspec.structs.replace(known, protection=bare(known.protection)) for known in policy.priority_classes)
    scheduling = msgspec.structs.replace(policy.scheduling, evictions=bare(policy.scheduling.evictions))
    queues = tuple(
        msgspec.structs.replace(
            queue,
            origin="",
            access=QueueAccess(
                namespaces=tuple(msgspec.structs.replace(entry, origin="") for entry in queue.access.namespaces)
            ),
            quota=tuple(map(bare, queue.quota)),
            host_quota=tuple(msgspec.structs.replace(entry, origin="") for entry in queue.host_quota),
            hours=tuple(
                msgspec.structs.replace(known, origin="", quota=tuple(map(bare, known.quota))) for known in queue.hours
            ),
            ahead=tuple(msgspec.structs.replace(known, quota=tuple(map(bare, known.quota))) for known in queue.ahead),
        )
        for queue in policy.queues
    )
    return msgspec.structs.replace(
        policy,
        queues=queues,
        priority_classes=tuple(map(bare, classes)),
        scheduling=msgspec.structs.replace(scheduling, origin="", **_UNREAD_BY_ROUNDS),
        sharing=tuple(bare(known) for known in policy.sharing),
        mig=tuple(bare(known) for known in policy.mig),
        reservations=tuple(bare(known) for known in policy.reservations),
    )
