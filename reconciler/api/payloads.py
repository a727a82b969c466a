"""What the API answers: documents of the domain, and these, which join or list them. Client and server share them."""

from __future__ import annotations

from typing import Final, Literal

from reconciler.analysis.backtest.history_file import RecordedJob
from reconciler.control.model_flops import ReportedWork
from reconciler.control.use_summary import GpuUtilisation
from reconciler.lifecycle.jobs.eligibility import Block
from reconciler.model.broken_limit import BrokenLimit
from reconciler.model.budget import BudgetStanding
from reconciler.model.checkpoint_record import CheckpointRecord
from reconciler.model.comparison import ObservedComparison
from reconciler.model.failure import Failure
from reconciler.model.git_status import Drift
from reconciler.model.health_record import PartHealth
from reconciler.model.intervention_record import Intervention
from reconciler.model.job_record import ArrayElement, JobOutcome, JobState
from reconciler.model.problem import Problem
from reconciler.model.queue_line import HostQueueLine, HoursInForce, QueueLine, QueueUser
from reconciler.model.watch_status import FollowedKind
from reconciler.protocols.backend import Activity, Epoch
from reconciler.protocols.history import Event
from reconciler.protocols.ledger import Marks
from reconciler.protocols.rounds import RoundSummary
from solver.model.cluster import DeviceId, Node
from solver.model.document import API_VERSION, Document
from solver.model.quantities import Cpu, Duration, Instant, Memory, MilliGpu
from solver.model.workload import JobName, JobSpec, QueueName, TaskPlacement
from solver.plan.plan import Verdict
from solver.plan.reasons import AnyReason
from solver.policy.policy import Policy

LOG_BYTES_MAX: Final = 1_000_000

NEXT_OFFSET: Final = "Quorate-Next-Offset"
"""The header that says where the next piece of a log begins."""
"""Of a log in one answer."""


class Payload(Document, frozen=True, omit_defaults=False):
    """An answer; every one says which version of the API it is written in."""

    api_version: Literal["quorate.dev/v1"] = API_VERSION


class JobView(Payload, frozen=True, kw_only=True):
    """A job as submitted, and where it stands. `tasks` is what it holds, `time_limit` and `idle_limit` what it was started under.

    `gpus`: of the whole job, an elastic one at its full size; `gpus_held`: of these so many are its own now.

    `failures`: attempts that failed and were followed by another. `block`: what keeps rounds from being asked about it.
    `boost`: what puts it before the others of its queue that wait.
    `activity`: when a running job that has an idle limit did something last, and until when that is known; null: it is not.
    `degraded`: in what a running service falls short of what it should be; "" where it does not.
    `marks`: when a running job was told that its time limit is near, and since when it is stuck or does nothing.
    `budget_limits`: which budgets are spent so that its queue borrows nothing. `idle_exemption`: which IdlePolicy leaves it alone,
    until when and why; "": none does. `work`: what its tasks report of tokens, operations and MFU; null: nothing, or not lately.
    `redacted`: the command, the environment and output of tasks are left out, since they are for the job's own team.
    """

    name: JobName
    spec: JobSpec
    user: str
    submitted_at: Instant
    state: JobState
    attempt: int = 0
    since: Instant | None = None
    running_since: Instant | None = None
    time_limit: Duration | None = None
    idle_limit: Duration | None = None
    idle_exemption: str = ""
    budget_limits: tuple[str, ...] = ()
    activity: Activity | None = None
    work: ReportedWork | None = None
    tasks: tuple[TaskPlacement, ...] = ()
    gpus: MilliGpu = MilliGpu(0)
    gpus_held: MilliGpu = MilliGpu(0)
    cancel_requested_by: str = ""
    outcome: JobOutcome | None = None
    suspended_by: str = ""
    failures: tuple[Failure, ...] = ()
    block: Block | None = None
    boost: Intervention | None = None
    array: ArrayElement | None = None
    pipeline: str = ""
    marks: Marks = Marks()
    degraded: str = ""
    redacted: bool = False

    @property
    def state_word(self) -> str:
        """Its state for people: `degraded` where it runs and falls short of what it should be."""
        return "degraded" if self.degraded and self.state == "running" else self.state


class JobList(Payload, frozen=True, kw_only=True):
    """Jobs, newest first. `next`: the cursor of the page after this one; "": there is none."""

    items: tuple[JobView, ...]
    next: str = ""


class EventList(Payload, frozen=True, kw_only=True):
    """What happened to one subject, oldest first. `next`: the cursor of the events before these; "": there are none."""

    items: tuple[Event, ...]
    next: str = ""


class CheckpointList(Payload, frozen=True, kw_only=True):
    """What a job has saved, newest first."""

    items: tuple[CheckpointRecord, ...]


class Why(Payload, frozen=True, kw_only=True):
    """Why a job is where it is: the verdict of the newest round, and the same in words.

    No verdict where no round has looked at the job yet, or where it has ended. `would_help`: what would make it start sooner, for
    each of the reasons for which there is something, also where that is not in the hands of its user.
    """

    name: JobName
    state: JobState
    verdict: Verdict | None
    words: tuple[str, ...]
    would_help: tuple[str, ...] = ()


class QueueView(Document, frozen=True, omit_defaults=False):
    """One queue: its place in the tree, its jobs, and its GPUs with those of the queues below it. `hold`: one by hand.

    `use`: what is known of the use of the GPUs that it and those below it hold. `users`: those that share it fairly and hold or
    wait for GPUs, where they are asked for, as far as the caller may see their jobs. `hints`: which of them a weight may be meant
    for that names another. `host`: its CPU and memory, where some queue
    of the policy says anything of either. `hours`: which hours of its quota are open, and until when; null: it has
    none.
    """

    name: QueueName
    parent: QueueName | None
    weight: int
    running: int
    pending: int
    gpus: tuple[QueueLine, ...]
    hold: Intervention | None = None
    use: tuple[GpuUtilisation, ...] = ()
    users: tuple[QueueUser, ...] = ()
    hints: tuple[str, ...] = ()
    host: tuple[HostQueueLine, ...] = ()
    hours: HoursInForce | None = None


class QueueList(Payload, frozen=True, kw_only=True):
    """The queue tree, sorted by name. `budgets`: how those stand of queues, and of users whose jobs the caller may see."""

    items: tuple[QueueView, ...]
    budgets: tuple[BudgetStanding, ...] = ()


class HeldDevice(Document, frozen=True):
    """A device and the job that holds it, or `share` of it; one that is shared occurs once for each task.

    An instance is a device of its own, and `share` is its part of the GPU.
    """

    device: DeviceId
    job: JobName
    share: MilliGpu | None = None


class NodeView(Document, frozen=True, omit_defaults=False):
    """One node, the jobs that hold its devices, what CPU and memory its tasks have taken, and the jobs they belong to.

    `changing`: GPUs of it that are being partitioned. `cordon`: one by hand.
    `health`: it, or GPUs of it, that are not well, and why. `nvlink`: how its NVLinks contradict its island; "": they don't.
    """

    node: Node
    held: tuple[HeldDevice, ...]
    cpu_held: Cpu
    memory_held: Memory
    jobs: tuple[JobName, ...]
    changing: tuple[DeviceId, ...] = ()
    cordon: Intervention | None = None
    health: tuple[PartHealth, ...] = ()
    nvlink: str = ""


class NodeList(Payload, frozen=True, kw_only=True):
    """Every node, sorted by name."""

    items: tuple[NodeView, ...]


class RoundList(Payload, frozen=True, kw_only=True):
    """Rounds, newest first. `next`: the cursor of the page after this one; "": there is none."""

    items: tuple[RoundSummary, ...]
    next: str = ""


class PolicyView(Payload, frozen=True, kw_only=True):
    """The policy in force."""

    revision: str
    digest: str
    policy: Policy


SUSPENDED: Final = "Suspended"
"""The condition that says whether a person has stopped the following of Git."""

BEHIND: Final = "Behind"
"""The condition that says whether what is known of a cluster is old, where jobs are pods."""

NOT_KEPT: Final = "NotKept"
"""The condition that says what the policy asks for that is not kept where jobs are pods; left out where there is nothing."""

HELD_BACK: Final = "HealthHeldBack"
"""The condition that says what would be closed for its health if not too much of its pool were; left out where there is nothing."""

FALLS_SHORT: Final = "FallsShort"
"""The condition that says which jobs wait or leave though they need not; left out where none does."""

LEADING: Final = "Leading"
"""The condition that says whether this server's loop decides rounds."""


class Condition(Document, frozen=True, omit_defaults=False):
    """One statement on the control plane, such as Ready, Reconciling, Stalled or Leading."""

    type: str
    status: bool
    reason: str = ""
    message: str = ""


class InterventionAsked(Document, frozen=True):
    """Why something is done by hand, and until when: a span from now, a time, or "" for as long as is usual."""

    reason: str
    until: str = ""


class InterventionList(Payload, frozen=True, kw_only=True):
    """What people did by hand. `next`: the cursor of the page after this one; "": there is none."""

    items: tuple[Intervention, ...]
    next: str = ""


class Status(Payload, frozen=True, kw_only=True):
    """How the control plane stands. Revisions are "" before the first. `live_jobs` counts jobs by state, ended ones aside.

    `looked_at`: when Git was last looked at, whatever came of it; null: not since the start.
    `by_hand`: what is in force beside what Git says, the oldest first; of jobs, those that the caller may see.
    `drift`: what the revision that is held would do beside what was accepted of it, where that is why.
    `broken_limits`: those of the policy that are below what their queues hold, as the last round saw it.
    `followed`: where jobs are pods, how far each kind of the API server's objects is followed.
    `beside`: where Slurm schedules, what rounds would have done beside it; of jobs, those that the caller may see.
    """

    conditions: tuple[Condition, ...]
    last_applied_revision: str
    last_attempted_revision: str
    epoch: Epoch
    holder: str
    live_jobs: dict[JobState, int] = {}  # noqa: RUF012  (msgspec copies an empty default for every instance)
    by_hand: tuple[Intervention, ...] = ()
    looked_at: Instant | None = None
    drift: tuple[Drift, ...] = ()
    broken_limits: tuple[BrokenLimit, ...] = ()
    followed: tuple[FollowedKind, ...] = ()
    beside: ObservedComparison | None = None


class WhoAmI(Payload, frozen=True, kw_only=True):
    """The caller. `owner`: holds the state folder's token, and may do everything."""

    user: str
    groups: tuple[str, ...]
    owner: bool
    submits_to: tuple[QueueName, ...]


class WatchStart(Payload, frozen=True, kw_only=True):
    """The first message of a stream: events with larger numbers follow."""

    number: int


class WatchEnd(Payload, frozen=True, kw_only=True):
    """The last message of a stream that the server ends."""

    reason: str
    message: str


class ApiProblem(Payload, frozen=True, kw_only=True):
    """Why a request was refused, as RFC 9457 has it: `type`, `title`, `status`, `detail` (the problem), `instance` (the path).

    Beside them a stable `code`, what to do (`fix`), and for jobs and documents every detail.
    """

    code: str
    detail: str
    status: int = 0
    title: str = ""
    type: str = "about:blank"
    instance: str = ""
    fix: str = ""
    reasons: tuple[AnyReason, ...] = ()
    problems: tuple[Problem, ...] = ()


class RecordedJobList(Payload, frozen=True, kw_only=True):
    """Jobs, newest first, as of an instant. `next`: the cursor of the page after this one; "": there is none."""

    items: tuple[RecordedJob, ...]
    at: Instant
    next: str = ""
