"""A real server on a real store, with a tiny policy and the local backend's logs; no loop beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import msgspec
import pytest

from reconciler.access.policy import AccessPolicy
from reconciler.alerts.desk import AlertDesk
from reconciler.alerts.sender import Sender
from reconciler.api.git_services import GitServices, Planning
from reconciler.api.guard import Guard
from reconciler.api.payloads import Condition, Status
from reconciler.api.server import ApiServer
from reconciler.api.services import PastRecords, Services
from reconciler.backends.baremetal.authority import CertificateAuthority
from reconciler.backends.baremetal.authority_file import AuthorityFile
from reconciler.backends.baremetal.desk import AgentDesk
from reconciler.client import Client
from reconciler.control.control import PolicyInForce
from reconciler.control.metrics import Metrics
from reconciler.control.observation import join
from reconciler.control.queue_use import queue_uses
from reconciler.control.use_summary import KnownUse, LatestUse
from reconciler.documents.operations import Operations
from reconciler.gitops.source.archive import RevisionArchive
from reconciler.lifecycle.health.effects import closed_places
from reconciler.lifecycle.interventions.effects import about
from reconciler.lifecycle.jobs.backend_reports import BackendReports
from reconciler.model.broken_limit import BrokenLimit
from reconciler.model.clock import SystemClock
from reconciler.model.git_status import PolicyCondition, PolicyStatus
from reconciler.model.gpu_use import NodeMinute
from reconciler.model.retry_policy import RetryPolicy
from reconciler.model.review_findings import Review
from reconciler.model.watch_status import FollowedKind
from reconciler.protocols.backend import Epoch, Unstartable
from reconciler.protocols.ledger import Claim
from reconciler.protocols.rounds import RoundRecord
from reconciler.store.store import SqlStore
from solver.model.cluster import GpuType, NodeName
from solver.model.inflight import Intent
from solver.model.node_sets import NodeSet
from solver.model.quantities import Duration, Instant, MilliGpu
from solver.model.shape import Shape
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName, JobSpec, QueueName, TaskGroup, TaskPlacement
from solver.plan.plan import Plan, Verdict
from solver.plan.reasons import AnyReason
from solver.plan.refusals import AboveMax
from solver.policy.policy import Policy, Queue, Quota, policy_of
from solver.round.solve import solve
from tests.contracts.simulated_worlds import NODES
from tests.fresh_store import fresh_store
from tests.reconciler.api import signatures

signatures.install()

TOKEN = "t" * 43
H100 = GpuType("H100")
SIX = MilliGpu.gpus(6)
POLICY = policy_of(
    (
        Queue(QueueName("org")),
        Queue(QueueName("team"), QueueName("org"), (Quota(H100, guaranteed=MilliGpu.gpus(4), max=SIX),), weight=2),
        Queue(QueueName("other"), QueueName("org")),
    )
)
OPERATIONS = Operations(retry=(RetryPolicy("training"),))
REVISION = "abc123"
WEBHOOK_SECRET = b"a secret of the forge"
IN_FORCE = PolicyStatus((PolicyCondition("Ready", status=True, reason="", message=""),), REVISION, REVISION)
NOW = Instant(1_700_000_000_000)


def spec(gpus: int = 1, replicas: int = 1, queue: str = "team", command: tuple[str, ...] = ("true",)) -> JobSpec:
    return JobSpec(QueueName(queue), (TaskGroup("worker", replicas, Shape(gpus=gpus)),), command=command)


@dataclass
class Site:
    """What stands behind the server, to be set up by a test."""

    store: SqlStore
    logs: dict[tuple[str, int, str, int], bytes] = field(default_factory=dict)
    woken: int = 0
    ready: bool = True
    sighted: BackendReports = field(default_factory=lambda: BackendReports({}, {}))
    metrics: Metrics = field(default_factory=Metrics)
    operations: Operations = OPERATIONS
    policy: Policy = POLICY
    access: AccessPolicy | None = None
    lacks: Unstartable | None = None
    looks: int = 0
    told: PolicyStatus = IN_FORCE
    revision: str = REVISION
    webhook_secrets: tuple[bytes, ...] = (WEBHOOK_SECRET,)
    planned: Review | None = None
    broken_limits: tuple[BrokenLimit, ...] = ()
    followed: tuple[FollowedKind, ...] = ()
    node_sets: tuple[NodeSet, ...] = ()
    minutes: dict[NodeName, NodeMinute] = field(default_factory=dict)
    keeps_use: bool = True

    @cached_property
    def agents(self) -> AgentDesk:
        clock, file = SystemClock(), AuthorityFile(self.secrets / "agents" / "authority.pem")
        file.make(clock.now())
        return AgentDesk(self.store.agents, CertificateAuthority(file, self.store.agents, clock))

    @property
    def in_force(self) -> PolicyInForce:
        return PolicyInForce(self.revision, self.policy, NODES, self.operations)

    def services(self) -> Services:
        return Services(
            jobs=self.store.jobs,
            ledger=self.store.ledger,
            history=self.store.history,
            logs=self,
            clock=SystemClock(),
            metrics=self.metrics,
            policy=lambda: (self.revision, self.policy),
            snapshot=self.snapshot,
            queue_uses=lambda: tuple(queue_uses(self.snapshot(), self.policy)),
            sighted=lambda: self.sighted,
            verdict=self.verdict,
            admit=self.admit,
            status=lambda: Status(
                conditions=tuple(Condition(*msgspec.structs.astuple(each)) for each in self.told.conditions),
                looked_at=NOW if self.looks else None,
                last_applied_revision=self.revision,
                last_attempted_revision=self.revision,
                epoch=self.epoch(),
                holder="test",
                broken_limits=self.broken_limits,
                followed=self.followed,
            ),
            ready=lambda: self.ready,
            wake=self.wake,
            checkpoints=self.store.checkpoints,
            interventions=self.store.interventions,
            health=self.store.health,
            operations=lambda: self.operations,
            alerts=AlertDesk(self.store.alerts, Sender(self.secrets, SystemClock())),
            following=GitServices(
                "main",
                self.store.following,
                lambda: self.told,
                self.look,
                lambda: None,
                Planning(self.store.plans, lambda: self.planned, lambda: self.in_force),
                RevisionArchive(self.secrets / "mirror.git"),
                lambda: self.webhook_secrets,
            ),
            alias_keys=lambda: ("k" * 43,),
            access=lambda: self.access,
            agents=self.agents,
            placements=self.store.placements,
            past=PastRecords(self.store.placements, self.store.capacities, self.store.past_jobs),
            audit=self.store.audit,
            together=self.store.database.together,
            use=KnownUse(
                LatestUse(lambda: self.minutes, SystemClock()), self.store.gpu_uses if self.keeps_use else None
            ),
            unstartable=lambda _, user: self.lacks if user == "alice" else None,
        )

    @property
    def secrets(self) -> Path:
        """Where files lie that AlertPolicies name."""
        return Path(self.store.database.place).parent

    def read_log(self, job: JobName, attempt: int, group: str, index: int, offset: int, limit: int) -> bytes:
        return self.logs[job, attempt, group, index][offset : offset + limit]

    def look(self) -> Instant:
        self.looks += 1
        return NOW

    def wake(self) -> None:
        self.woken += 1

    def admit(self, asked: JobSpec) -> tuple[AnyReason, ...]:
        return (AboveMax(asked.queue, H100, SIX, asked.gpus),) if asked.gpus > SIX else ()

    def snapshot(self) -> Snapshot:
        claims = {claim.job: claim for claim in self.store.ledger.claims()}
        by_hand = about(self.store.interventions.in_force(), "cordon", "node", SystemClock().now())
        unfit = {*by_hand, *closed_places(self.store.health.all())}
        return snapshot_of(
            NOW,
            (join(node, node, unfit) for node in NODES),
            (self._job(name, claims) for name in (r.name for r in self.store.jobs.live_jobs())),
            node_sets=self.node_sets,
        )

    def plan(self) -> Plan:
        return solve(self.snapshot(), POLICY, None)

    def verdict(self, name: JobName) -> Verdict | None:
        return next((verdict for verdict in self.plan().verdicts if verdict.job == name), None)

    def epoch(self) -> Epoch:
        return self.store.ledger.lead("test", NOW, Duration(10_000))

    def bind(self, name: str, *tasks: TaskPlacement, attempt: int = 1) -> None:
        """As the loop would: the job holds these devices in an attempt."""
        intent = Intent("start", JobName(name), attempt, NOW, NOW.after(1_000), tasks)
        types = tuple({task.group: H100 for task in tasks if task.devices}.items())
        self.store.ledger.claim(self.epoch(), Claim(JobName(name), attempt, tasks, NOW, gpu_types=types), intent)

    def record_round(self) -> RoundRecord:
        record = RoundRecord(0, NOW, self.revision, self.snapshot(), POLICY, self.plan(), {"solve": 12.5, "act": 2.0})
        self.store.history.record_round(self.epoch(), record)
        self.metrics.observe(record.snapshot, record.plan, record.phase_ms)
        return record

    def _job(self, name: JobName, claims: dict[JobName, Claim]) -> Job:
        record, claim = self.store.jobs.job(name), claims.get(name)
        if claim is None:
            return Job(name, record.submitted_at, record.spec, record.user)
        return Job(name, record.submitted_at, record.spec, record.user, "starting", 1, placement=claim.tasks)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    store = fresh_store(tmp_path / "quorate.db")
    yield Site(store)
    store.close()


@pytest.fixture
def server(site: Site) -> Iterator[ApiServer]:
    with ApiServer(site.services(), Guard(TOKEN, user="alice")) as running:
        yield running


@pytest.fixture
def client(server: ApiServer) -> Iterator[Client]:
    with Client(server.url, TOKEN) as connected:
        yield connected
