"""What the API is told of a running control plane: read from the loop's last pass, the policy in force and the stores."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final, Protocol

from reconciler.access.policy import AccessPolicy
from reconciler.alerts.desk import AlertDesk
from reconciler.api.git_services import GitServices
from reconciler.api.payloads import FALLS_SHORT, HELD_BACK, LEADING, SUSPENDED, Condition, Status
from reconciler.api.problems import NotReadyError
from reconciler.api.services import PastRecords, Services
from reconciler.backends.baremetal.desk import AgentDesk
from reconciler.control.broken_limits import broken_limits_of
from reconciler.control.control import NoPolicyError
from reconciler.control.lending import without_lent
from reconciler.control.metrics import Metrics
from reconciler.control.passes import Pass
from reconciler.control.queue_use import LatestQueueUses, QueueUse
from reconciler.control.runner import Condition as LoopCondition
from reconciler.control.runner import LoopStatus
from reconciler.control.use_summary import KnownUse
from reconciler.documents.operations import Operations
from reconciler.gitops.source.standing_policy import StandingPolicy
from reconciler.lifecycle.health.cap import held_back
from reconciler.lifecycle.jobs.backend_reports import BackendReports
from reconciler.model.broken_limit import BrokenLimit
from reconciler.model.budget import BudgetStanding
from reconciler.model.clock import Clock
from reconciler.model.comparison import ObservedComparison
from reconciler.model.health_record import NodeHealth
from reconciler.model.task_log import Logs
from reconciler.model.watch_status import FollowedKind
from reconciler.protocols.backend import Epoch, Unstartable
from reconciler.protocols.checkpoints import CheckpointRegistry
from reconciler.protocols.health import NodeHealths
from reconciler.protocols.history import History
from reconciler.protocols.interventions import Interventions
from reconciler.protocols.job_source import JobSource
from reconciler.protocols.ledger import LedgerView
from reconciler.protocols.terminals import Terminals
from reconciler.server.admission import AdmissionCheck
from reconciler.server.plane_figures import PlaneFigures
from reconciler.server.work_figures import WorkFigures
from solver.model.cluster import GpuType
from solver.model.quantities import Instant
from solver.model.snapshot import Snapshot
from solver.model.workload import JobName, JobSpec
from solver.plan.plan import Verdict
from solver.plan.reasons import AnyReason
from solver.plan.violation import Violation
from solver.policy.policy import Policy, Queue


class Plane(Protocol):
    """What is read of a control plane, whatever it runs jobs on."""

    @property
    def holder(self) -> str:
        """Its name to others."""

    @property
    def jobs(self) -> JobSource:
        """What wants to run."""

    @property
    def ledger(self) -> LedgerView:
        """What each job holds."""

    @property
    def history(self) -> History:
        """What happened."""

    @property
    def logs(self) -> Logs:
        """Where output can be read."""

    @property
    def clock(self) -> Clock:
        """What time it is."""

    @property
    def checkpoints(self) -> CheckpointRegistry:
        """What is saved."""

    @property
    def interventions(self) -> Interventions:
        """What people do by hand."""

    @property
    def health(self) -> NodeHealths:
        """What speaks against nodes."""

    @property
    def budgets(self) -> Callable[[], Sequence[BudgetStanding]]:
        """How budgets stand."""

    @property
    def terminals(self) -> Terminals:
        """The way to tasks that have one."""


SPARED_NAMED_MAX: Final = 5
SHORTFALLS_NAMED_MAX: Final = 3

_OVER: Final[frozenset[LoopCondition]] = frozenset({"ended", "store-unusable"})


class ClusterStanding(Protocol):
    """What is followed of a cluster with objects that others keep, and what is said of that."""

    def followed(self) -> tuple[FollowedKind, ...]:
        """How far each kind is."""

    def conditions(self) -> tuple[Condition, ...]:
        """Whether that is far enough, and what of the policy is not kept there."""

    def beside(self) -> ObservedComparison | None:
        """What rounds would have done beside another scheduler; None: that is not compared here."""


class ConditionSource(Protocol):
    """A part of the server that has something to say of how it fares, now and then."""

    def conditions(self) -> Iterator[Condition]:
        """What is out of order with it now."""


class Loop(Protocol):
    """Whatever takes its passes."""

    @property
    def status(self) -> LoopStatus:
        """How it fares."""

    def wake(self) -> None:
        """There is something new."""


def services_of(
    plane: Plane,
    standing: StandingPolicy,
    runner: Loop,
    metrics: Metrics,
    alerts: AlertDesk,
    following: GitServices,
    alias_keys: Callable[[], Sequence[str]],
    unstartable: Callable[[JobSpec, str], Unstartable | None],
    agents: AgentDesk | None = None,
    cluster: ClusterStanding | None = None,
    watched: Sequence[ConditionSource] = (),
    cancelled: Callable[[Collection[JobName]], None] = lambda _: None,
    submitted: Callable[[Collection[JobName]], None] = lambda _: None,
    past: PastRecords | None = None,
    *,
    use: KnownUse,
) -> Services:
    """Everything the API needs. `cluster`: where others keep what jobs are, how that is followed."""
    watch = ControlPlaneView(plane, standing, runner, following, cluster, watched)
    metrics.add(PlaneFigures(lambda: runner.status, standing.status, watch.queue_uses))
    seen = watch.policy, watch.snapshot, watch.queue_uses, watch.sighted
    said = watch.verdict, watch.admit, watch.status, watch.ready
    made = Services(
        *(plane.jobs, plane.ledger, plane.history, plane.logs, plane.clock),
        metrics,
        *seen,
        *said,
        runner.wake,
        *(plane.checkpoints, plane.interventions, plane.health),
        watch.operations,
        alerts,
        following,
        alias_keys,
        use,
        watch.access,
        unstartable,
        plane.terminals,
        agents,
        cancelled,
        submitted,
        past.placements if past else None,
        watch.verdicts,
        watch.gpu_types,
        past,
        plane.budgets,
    )
    metrics.add(WorkFigures(made.work))
    return made


class ControlPlaneView:
    """Looks at the parts of a control plane while they work. Any thread may ask."""

    def __init__(
        self,
        plane: Plane,
        standing: StandingPolicy,
        runner: Loop,
        following: GitServices,
        cluster: ClusterStanding | None = None,
        watched: Sequence[ConditionSource] = (),
    ) -> None:
        self._cluster = cluster
        self._watched = watched
        self._plane = plane
        self._standing = standing
        self._runner = runner
        self._following = following
        self._admitting = AdmissionCheck()
        self._uses = LatestQueueUses()
        self._shown: tuple[Snapshot | None, Snapshot] = None, Snapshot(Instant(0), (), ())
        self._broken: tuple[Pass | None, tuple[BrokenLimit, ...]] = None, ()

    def policy(self) -> tuple[str, Policy]:
        """The revision in force and its policy. Raises NoPolicyError."""
        current = self._standing.current()
        return current.revision, current.policy

    def operations(self) -> Operations:
        """What the revision in force says beside what rounds decide. Raises NoPolicyError."""
        return self._standing.current().operations

    def access(self) -> AccessPolicy | None:
        """The AccessPolicy in force; None where there is none, or no policy yet."""
        try:
            return self._standing.current().operations.access
        except NoPolicyError:
            return None

    def snapshot(self) -> Snapshot:
        """What the last pass saw, each job in its own queue. Raises NotReadyError."""
        seen, (before, shown) = self._last_pass().snapshot, self._shown
        if before is not seen:
            shown = without_lent(seen)
            self._shown = seen, shown
        return shown

    def queue_uses(self) -> tuple[tuple[Queue, QueueUse], ...]:
        """What the last pass says of every queue. Raises NotReadyError, NoPolicyError."""
        last, policy = self._last_pass(), self._standing.current().policy
        return self._uses.of(self.snapshot(), policy, last.uses if policy is last.policy else None)

    def sighted(self) -> BackendReports:
        """What the last pass saw of the backend; nothing before there was one."""
        last = self._runner.status.last
        return last.sighted if last else BackendReports({}, {})

    def verdict(self, name: JobName) -> Verdict | None:
        """What the last pass says of a job."""
        last = self._runner.status.last
        return next((verdict for verdict in last.plan.verdicts if verdict.job == name), None) if last else None

    def verdicts(self) -> Sequence[Verdict] | None:
        """What the last pass says of all jobs; None: a part of that is still to come, or there was none."""
        last = self._runner.status.last
        return last.plan.verdicts if last and last.is_whole else None

    def admit(self, spec: JobSpec) -> tuple[AnyReason, ...]:
        """Why a job could never run under the policy in force, on the cluster as declared. Raises NoPolicyError."""
        return self._admitting.refusals(self._standing.current(), spec)

    def gpu_types(self) -> frozenset[GpuType]:
        """Those of declared nodes. Raises NoPolicyError."""
        return self._admitting.gpu_types(self._standing.current())

    def status(self) -> Status:
        """How following the branch goes, and whether the loop decides rounds."""
        policy, loop = self._standing.status(), self._runner.status
        conditions = [Condition(own.type, own.status, own.reason, own.message) for own in policy.conditions]
        suspension = self._following.decisions.suspension(self._plane.clock.now())
        if suspension is not None:
            conditions.append(Condition(SUSPENDED, status=True, reason="SuspendedByHand", message=str(suspension)))
        if self._cluster is not None:
            conditions += self._cluster.conditions()
        conditions += health_conditions(self._plane.health.all())
        conditions += tuple(known for source in self._watched for known in source.conditions())
        conditions += shortfall_conditions(loop.last.shortfalls if loop.last else ())
        leading = Condition(LEADING, loop.condition == "leading", loop.condition, loop.message)
        return Status(
            conditions=(*conditions, leading),
            last_applied_revision=policy.last_applied_revision,
            last_attempted_revision=policy.last_attempted_revision,
            epoch=loop.last.epoch if loop.last else Epoch(0),
            holder=self._plane.holder,
            looked_at=self._following.looked_at(),
            drift=policy.drift,
            broken_limits=self._broken_limits(loop.last),
            followed=self._cluster.followed() if self._cluster else (),
            beside=self._cluster.beside() if self._cluster else None,
        )

    def ready(self) -> bool:
        """Whether it has decided a round or stands by to, under a policy in force. It reads no store."""
        loop = self._runner.status
        if loop.condition in _OVER or (loop.last is None and loop.condition != "standing-by"):
            return False
        try:
            self._standing.current()
        except NoPolicyError:
            return False
        return True

    def _broken_limits(self, last: Pass | None) -> tuple[BrokenLimit, ...]:
        # As above: worked out once for a pass, however often status is asked.
        broken = self._broken
        if broken[0] is not last:
            found = tuple(broken_limits_of(last)) if last else ()
            self._broken = broken = last, found
        return broken[1]

    def _last_pass(self) -> Pass:
        status = self._runner.status
        if status.last is None:
            if status.condition == "no-policy":
                self._standing.current()  # Raises what is to be done about it, which is not to wait.
            told = (status.message or status.condition).rstrip(".")
            raise NotReadyError(f"The loop has not decided a round yet: {told}.")
        return status.last


def health_conditions(records: Iterable[NodeHealth]) -> Iterator[Condition]:
    """What is said of nodes' health, if there is anything."""
    spared = held_back(records)
    if spared:
        named = ", ".join((*spared[:SPARED_NAMED_MAX], *(["..."] if len(spared) > SPARED_NAMED_MAX else [])))
        told = f"health would close {len(spared)} more ({named}), and maxUnhealthy does not let it"
        yield Condition(HELD_BACK, status=True, reason="TooManyUnhealthy", message=told)


def shortfall_conditions(found: Sequence[Violation]) -> Iterator[Condition]:
    """What is said of jobs that wait or leave by the latest plan though they need not, if there are any."""
    if found:
        more = f", and {len(found) - SHORTFALLS_NAMED_MAX} more" if len(found) > SHORTFALLS_NAMED_MAX else ""
        named = "; ".join(f"{one.subject} {one.problem}" for one in found[:SHORTFALLS_NAMED_MAX])
        yield Condition(FALLS_SHORT, status=True, reason="PlanNotMaximal", message=f"{named}{more}")
