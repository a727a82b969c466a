"""What the API needs of the control plane, handed in as one value."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple

from reconciler.access.policy import AccessPolicy
from reconciler.alerts.desk import AlertDesk
from reconciler.api.git_services import GitServices
from reconciler.api.payloads import Status
from reconciler.backends.baremetal.desk import AgentDesk
from reconciler.control.control import NoPolicyError
from reconciler.control.metrics import Metrics
from reconciler.control.model_flops import WorkLine, work_lines
from reconciler.control.queue_use import QueueUse
from reconciler.control.use_summary import KnownUse
from reconciler.documents.operations import Operations
from reconciler.lifecycle.jobs.backend_reports import BackendReports
from reconciler.lifecycle.jobs.idle_gpus import GpuStill
from reconciler.model.budget import BudgetStanding
from reconciler.model.checkpoint_policy import CheckpointPolicy
from reconciler.model.clock import Clock, SystemClock
from reconciler.model.gpu_peaks import peaks_of
from reconciler.model.task_log import Logs
from reconciler.protocols.audit import AuditTrail
from reconciler.protocols.backend import AttemptKey, Unstartable
from reconciler.protocols.capacity import Capacities
from reconciler.protocols.checkpoints import CheckpointRegistry
from reconciler.protocols.health import NodeHealths
from reconciler.protocols.history import History
from reconciler.protocols.interventions import Interventions
from reconciler.protocols.job_source import JobSource
from reconciler.protocols.ledger import LedgerView
from reconciler.protocols.past_jobs import PastJobs
from reconciler.protocols.placements import Placements
from reconciler.protocols.terminals import NO_TERMINALS, Terminals
from solver.model.cluster import GpuType
from solver.model.snapshot import Snapshot
from solver.model.workload import JobName, JobSpec
from solver.plan.plan import Verdict
from solver.plan.reasons import AnyReason
from solver.policy.policy import Policy, Queue


class PastRecords(NamedTuple):
    """What is kept of the past."""

    placements: Placements
    capacities: Capacities
    jobs: PastJobs


@dataclass(frozen=True, slots=True)
class Services:
    """The stores, and functions that any thread may call.

    `admit` gives the reasons why a job could never run, () for one that could. `verdict` is the newest there is on a live
    job. `snapshot` is the world as last observed; it raises NotReadyError before there is one; `queue_uses` is what
    queues hold and want in it, and raises as it does and `policy`; `sighted` is what the backend
    said for it, nothing before that. `policy`, `operations` and `admit` raise
    NoPolicyError. `ready`: whether rounds are decided here, or would be if this control plane led; it reads no store. `wake`
    tells the loop that there is something new. `access` is the AccessPolicy in force; None where there is none, or no policy
    yet. `unstartable` says why no task of a job could begin that a user submits; None: nothing is known against it.
    `cancelled` tells that it is on record of jobs that they are to end.
    `alias_keys`: the first is what names of users and jobs are hidden with now.
    `agents`: None where jobs do not run on machines with agents.
    `placements`: None where jobs are Slurm's, of which nothing here says what they held. `verdicts`: all that the last plan says of
    jobs; None while a part of that is still to come. `gpu_types`: those of declared nodes, for which a name may be short; raises
    NoPolicyError. `past`: None where there are no placements. `use`: what GPUs do and did.
    `budgets`: how they stand; none before that is known. `audit`: the audit chain; None: there is none.
    `together`: what is written in its block is there whole, or not at all.
    `clock`: the time of the cluster, by which jobs run and wait. `wall`: by which tokens end.
    `idle_gpus`: what the GPUs of jobs with an idle limit are known to do; of none where another control plane leads.
    """

    jobs: JobSource
    ledger: LedgerView
    history: History
    logs: Logs
    clock: Clock
    metrics: Metrics
    policy: Callable[[], tuple[str, Policy]]
    snapshot: Callable[[], Snapshot]
    queue_uses: Callable[[], tuple[tuple[Queue, QueueUse], ...]]
    sighted: Callable[[], BackendReports]
    verdict: Callable[[JobName], Verdict | None]
    admit: Callable[[JobSpec], tuple[AnyReason, ...]]
    status: Callable[[], Status]
    ready: Callable[[], bool]
    wake: Callable[[], None]
    checkpoints: CheckpointRegistry
    interventions: Interventions
    health: NodeHealths
    operations: Callable[[], Operations]
    alerts: AlertDesk
    following: GitServices
    alias_keys: Callable[[], Sequence[str]]
    use: KnownUse
    access: Callable[[], AccessPolicy | None] = lambda: None
    unstartable: Callable[[JobSpec, str], Unstartable | None] = lambda _, __: None
    terminals: Terminals = NO_TERMINALS
    agents: AgentDesk | None = None
    cancelled: Callable[[Collection[JobName]], None] = lambda _: None
    submitted: Callable[[Collection[JobName]], None] = lambda _: None
    placements: Placements | None = None
    verdicts: Callable[[], Sequence[Verdict] | None] = lambda: None
    gpu_types: Callable[[], Collection[GpuType]] = lambda: ()
    past: PastRecords | None = None
    budgets: Callable[[], Sequence[BudgetStanding]] = tuple
    audit: AuditTrail | None = None
    idle_gpus: Callable[[], Mapping[AttemptKey, GpuStill]] = dict
    together: Callable[[], AbstractContextManager[None]] = nullcontext
    wall: Clock = SystemClock()

    def work(self) -> tuple[WorkLine, ...]:
        """What jobs report of their own work now. Raises NotReadyError, NoPolicyError."""
        _, policy = self.policy()
        peak_of = peaks_of(policy.scheduling.gpu_use.peaks)
        return work_lines(self.snapshot(), self.sighted(), peak_of, self.clock.now())

    def storages(self) -> dict[str, CheckpointPolicy]:
        """The CheckpointPolicies in force by name; none before there is a policy."""
        try:
            return self.operations().storages
        except NoPolicyError:
            return {}
