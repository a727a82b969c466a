"""What the API answers about arrays, pipelines, and jobs that are only tried."""

from __future__ import annotations

from typing import Literal

from reconciler.api.payloads import Payload
from reconciler.model.job_groups import GroupKind
from reconciler.model.job_record import JobState
from solver.model.document import Document
from solver.model.quantities import Instant
from solver.model.workload import Dependency, JobName, TaskPlacement
from solver.plan.plan import Verdict
from solver.plan.reasons import AnyReason


class MemberView(Document, frozen=True, omit_defaults=False):
    """One job of a group, and where it stands. `index`: in its `array`, where it is an element of one.

    `code`: what a script should see of it: 0 unless it failed or was cancelled, else its exit code, or 1 where it has none.
    """

    name: JobName
    state: JobState
    code: int = 0
    array: str = ""
    index: int | None = None
    depends_on: tuple[Dependency, ...] = ()


class GroupView(Payload, frozen=True, kw_only=True):
    """An array or a pipeline: how many of its jobs are in each state, and all of them in the order of their submission."""

    name: JobName
    kind: GroupKind
    user: str
    submitted_at: Instant
    pipeline: str = ""
    max_running: int | None = None
    counts: dict[JobState, int]
    jobs: tuple[MemberView, ...]


class NameView(Payload, frozen=True, kw_only=True):
    """What a name means now: the newest that is called so. `id`: what it is asked for by, and never changes."""

    id: JobName
    kind: Literal["job", "array", "pipeline"]


class Trial(Document, frozen=True, omit_defaults=False):
    """What would become of one job if it were submitted now.

    `refusals`: why it could never run; () if it could. `verdict`: the round's word on it; None where it would not be asked, as
    it could never run or `waits_for` others first. `tasks`: where it would start; `evicts`: jobs that would have to leave for it.
    `not_now`: why its class would not take it; "": it would.
    """

    name: JobName
    refusals: tuple[AnyReason, ...] = ()
    verdict: Verdict | None = None
    tasks: tuple[TaskPlacement, ...] = ()
    evicts: tuple[JobName, ...] = ()
    waits_for: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    not_now: str = ""

    @property
    def admissible(self) -> bool:
        """It could run one day."""
        return not self.refusals

    @property
    def is_taken(self) -> bool:
        """Its submission would not be refused."""
        return self.admissible and not self.not_now


class TrialList(Payload, frozen=True, kw_only=True):
    """What would become of a job, or of every job of an array or pipeline, as of the snapshot's `time`.

    `untried`: of a large array, how many more jobs there are that no round was asked about.
    """

    time: Instant
    items: tuple[Trial, ...]
    untried: int = 0
