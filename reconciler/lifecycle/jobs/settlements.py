"""What may follow from what the backend reports, as data: decided in jobs/decisions.py, made true in control."""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.model.failure import Failure, FailureKind
from reconciler.model.job_record import JobState
from reconciler.protocols.backend import Order, TaskStatus, TellGang
from reconciler.protocols.ledger import Marks
from solver.model.inflight import StopPurpose
from solver.model.quantities import Duration, Instant
from solver.model.workload import Dependency, JobName, TaskPlacement


@dataclass(frozen=True, slots=True)
class ConfirmRunning:
    """Every task of the gang runs, since `at`. `unwatched`: it matters what its tasks do, and that is not known of all of them."""

    job: JobName
    attempt: int
    at: Instant
    unwatched: bool = False


@dataclass(frozen=True, slots=True)
class AskToStop:
    """The gang shall end, because of `cause`."""

    job: JobName
    attempt: int
    cause: str
    purpose: StopPurpose = "end"


@dataclass(frozen=True, slots=True)
class Succeed:
    """Every task ended well, or the one of the group that launched the others' work."""

    job: JobName
    launched_by: str = ""


@dataclass(frozen=True, slots=True)
class Fail:
    """The gang has ended because of one task, and has failed for good; `told`: how, in words; `kind`: of failure."""

    job: JobName
    culprit: TaskStatus
    told: str
    kind: FailureKind = "exit"


@dataclass(frozen=True, slots=True)
class TimeOut:
    """The gang was stopped because it had run for as long as it may."""

    job: JobName
    limit: Duration


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The gang was stopped because it was stuck, and has failed for good; `told`: how, in words."""

    job: JobName
    told: str


@dataclass(frozen=True, slots=True)
class Cull:
    """The gang was stopped because it had done nothing for as long as it may; `told`: that, in words."""

    job: JobName
    told: str


@dataclass(frozen=True, slots=True)
class SuspendIdle:
    """The gang does nothing, and shall wait until it is resumed: `by` an IdlePolicy, because of `cause`."""

    job: JobName
    attempt: int
    by: str
    cause: str


@dataclass(frozen=True, slots=True)
class Cancel:
    """The job has ended, or never began, because a user asked for that."""

    job: JobName
    actor: str


@dataclass(frozen=True, slots=True)
class Retry:
    """The gang has ended because of `failure`, and the job waits to begin once more."""

    job: JobName
    failure: Failure


@dataclass(frozen=True, slots=True)
class Outlive:
    """Tasks of the gang have failed or are lost, and it goes on all the same, with them once they have rested or without them."""

    job: JobName
    failure: Failure


@dataclass(frozen=True, slots=True)
class BeginSaving:
    """The storage can take one more checkpoint: the gang, which is to stop, has `grace` to save its work."""

    job: JobName
    attempt: int
    grace: Duration
    cause: str


@dataclass(frozen=True, slots=True)
class BeginEnding:
    """A gang that was to save its work first is told to end now, because of `cause`."""

    job: JobName
    attempt: int
    grace: Duration
    cause: str


@dataclass(frozen=True, slots=True)
class Abandon:
    """What the job waits for can't come true any more, so it never begins; `became`: what did come of it."""

    job: JobName
    unmet: Dependency
    became: str


@dataclass(frozen=True, slots=True)
class CallOff:
    """A gang that has not been told to end yet need not stop any more."""

    job: JobName
    attempt: int
    cause: str


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Nothing of the attempt runs: its devices are free."""

    job: JobName
    attempt: int


@dataclass(frozen=True, slots=True)
class ForgetAttempt:
    """The backend need not report this attempt any more."""

    job: JobName
    attempt: int


@dataclass(frozen=True, slots=True)
class Send:
    """An order without a visible effect yet."""

    order: Order


@dataclass(frozen=True, slots=True)
class RecordMarks:
    """`marks` are to be remembered of a gang that runs. `kind`: of the event, "": none; `order`: what its tasks are told then."""

    job: JobName
    attempt: int
    marks: Marks
    kind: str = ""
    cause: str = ""
    order: TellGang | None = None


@dataclass(frozen=True, slots=True)
class ConfirmGrown:
    """Every task that joined the gang runs."""

    job: JobName
    attempt: int


@dataclass(frozen=True, slots=True)
class ConfirmShrunk:
    """Nothing runs of the tasks that were to leave the gang: their devices are free."""

    job: JobName
    attempt: int


@dataclass(frozen=True, slots=True)
class AskToLeave:
    """Some replicas of a service shall leave it, because of `cause`; it goes on without them."""

    job: JobName
    attempt: int
    tasks: tuple[TaskPlacement, ...]
    cause: str


@dataclass(frozen=True, slots=True)
class Restart:
    """Replicas of a service that have ended begin once more, where they were."""

    job: JobName
    attempt: int
    tasks: tuple[TaskPlacement, ...]


Confirmation = ConfirmRunning | ConfirmGrown | ConfirmShrunk
End = Succeed | Fail | TimeOut | GiveUp | Cull | Cancel | Abandon
Stage = BeginSaving | BeginEnding | CallOff
Settlement = (
    Confirmation
    | AskToStop
    | AskToLeave
    | Restart
    | Stage
    | Outlive
    | Retry
    | End
    | RecordMarks
    | SuspendIdle
    | GiveBack
    | ForgetAttempt
    | Send
)


def leads_to(settlement: Settlement) -> JobState | None:
    """The state of a job once a settlement is true; None: as before, or (GiveBack) that depends on the job."""
    match settlement:
        case ConfirmRunning() | CallOff():
            return "running"
        case AskToStop(purpose=purpose):
            return "stopping" if purpose in ("end", "cull", "stuck") else "evicting"
        case Succeed():
            return "succeeded"
        case Fail() | TimeOut() | GiveUp():
            return "failed"
        case Cancel() | Cull() | Abandon():
            return "cancelled"
        case _:
            return None
