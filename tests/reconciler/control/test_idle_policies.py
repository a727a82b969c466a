"""IdlePolicies in the loop: a job that leaves its GPUs idle is warned, and what follows comes after a grace, if at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest

from hack.crash.clocks import SteppedClock
from reconciler.control.broken_limits import broken_limits_of
from reconciler.control.control import LEASE
from reconciler.control.gpu_use import UseBook
from reconciler.control.idle_watch import IdleWatch
from reconciler.control.ledger_site import one_pass
from reconciler.control.quiet_gpus import with_quiet_gpus
from reconciler.control.use_summary import KnownUse, LatestUse
from reconciler.documents.operations import Operations
from reconciler.documents.repository import Compiled
from reconciler.gitops.review.idle import idle_catches
from reconciler.model.gpu_use import MINUTE, GpuMinute, NodeMinute, UseFigures, UseSpread, record_of
from reconciler.model.idle_policy import GpuActivityBelow, IdleAction, IdleEvidence, IdleExemption, IdlePolicy
from reconciler.model.job_record import JobState
from reconciler.protocols.ledger import IdleMark
from solver.model.quantities import Duration, Instant, MilliGpu
from solver.model.workload import JobName, QueueName
from solver.policy.policy import Queue, Quota, policy_of
from tests.reconciler.control.plane import Site

JOB = JobName("hoarder")
GPUS = IdleEvidence(GpuActivityBelow(5, Duration(4 * MINUTE), 0.75))
POLICY = IdlePolicy("hoarding", GPUS, grace=Duration(2 * MINUTE), origin="policies/idle.yaml:3")
DAY = Duration(24 * 60 * MINUTE)

Active = Callable[[str], float | None]


def nothing(_: str) -> float | None:
    return 0.0


class Used:
    """A site whose nodes tell by the minute how active their GPUs are: None, nothing is told."""

    def __init__(self, site: Site) -> None:
        self.site = site
        nodes = {node.name: node for node in site.declared}
        self.book = UseBook(site.clock, nodes.get, lambda: DAY)
        self.watch(site.store.gpu_uses)
        site.clock.advance(MINUTE - site.clock.now() % MINUTE)

    def watch(self, uses: object) -> None:
        watch = IdleWatch(self.book, uses)  # type: ignore[arg-type]
        self.site.only_plane = replace(self.site.only_plane, idle=watch)

    def hoard(self, policy: IdlePolicy = POLICY, command: tuple[str, ...] = ("busy", "forever"), gpus: int = 2) -> None:
        """A job that runs; what it does on CPUs is nobody's matter."""
        self.allow(policy)
        self.site.submit(JOB, command, gpus=gpus)
        self.site.rest()

    def allow(self, *policies: IdlePolicy) -> None:
        self.site.operations = msgspec.structs.replace(self.site.operations, idle=policies)

    def minutes(self, number: int, active: Active = nothing) -> None:
        """Some minutes, each told once it is over, with a pass after it."""
        for _ in range(number):
            start = Instant(self.site.clock.now() // MINUTE * MINUTE)
            self.site.clock.advance(start + MINUTE - self.site.clock.now())
            for node in self.site.declared:
                told = [(gpu.id, active(gpu.id)) for gpu in node.gpus]
                known = tuple(GpuMinute(gpu, "", record(share)) for gpu, share in told if share is not None)
                self.book.hear(node.name, [NodeMinute(start, known)] if known else [])
            self.site.one_pass(1)

    def mark(self) -> IdleMark | None:
        (claim,) = (claim for claim in self.site.store.ledger.claims() if claim.job == JOB)
        return claim.marks.idle

    def kinds(self) -> list[str]:
        told = ("idle", "idle-over", "lent", "suspend-asked", "asked-to-stop", "cancelled")
        return [kind for kind in self.site.events(JOB) if kind in told]

    def cause(self, kind: str) -> str:
        return [event.cause for event in self.site.store.history.events(JOB) if event.kind == kind][-1]


def record(active: float) -> bytes:
    return record_of(UseFigures("gpm", 12, active=UseSpread(active)))


@pytest.fixture
def used(site: Site) -> Used:
    return Used(site)


def test_one_that_leaves_its_gpus_idle_is_warned_and_no_earlier(used: Used) -> None:
    used.hoard()
    used.minutes(4)
    assert used.kinds() == []
    used.minutes(1)
    assert used.kinds() == ["idle"]
    mark = used.mark()
    assert mark is not None
    assert (mark.policy, mark.origin, mark.acts_at - mark.warned_at) == ("hoarding", POLICY.origin, POLICY.grace)
    assert used.cause("idle").startswith(f"all its GPUs were below 5 % active since {mark.since}")
    used.minutes(4)
    assert used.kinds() == ["idle"]
    assert used.site.state(JOB) == "running"


@pytest.mark.parametrize(
    ("action", "kinds", "state"),
    [
        ("end", ["idle", "asked-to-stop", "cancelled"], "cancelled"),
        ("suspend", ["idle", "suspend-asked", "asked-to-stop"], "suspended"),
        ("lend", ["idle", "lent"], "running"),
    ],
)
def test_what_follows_after_the_grace(used: Used, action: IdleAction, kinds: list[str], state: JobState) -> None:
    used.hoard(msgspec.structs.replace(POLICY, action=action))
    used.minutes(6)
    assert used.kinds() == ["idle"]
    used.minutes(1)
    used.site.until(JOB, state)
    assert used.kinds() == kinds
    if action == "end":
        outcome = used.site.store.jobs.job(JOB).outcome
        assert outcome is not None
        assert outcome.message.endswith("IdlePolicy hoarding ends such jobs")


def test_what_is_taken_from_a_lent_job_leaves_it_suspended(used: Used) -> None:
    """Else it would claim its guarantee back at once."""
    used.allow(msgspec.structs.replace(POLICY, action="lend", grace=Duration(0)))
    used.site.submit(JOB, ("busy", "forever"), tasks=2, gpus=4)
    used.site.rest()
    used.minutes(6)
    assert used.kinds() == ["idle", "lent"]
    assert used.site.state(JOB) == "running"
    used.site.submit("second", ("busy", "forever"), tasks=2, gpus=4)
    used.site.until("second", "running")
    record = used.site.store.jobs.job(JOB)
    assert (used.site.state(JOB), record.suspended_by) == ("suspended", "IdlePolicy hoarding")
    used.site.passes(5)
    assert used.site.state("second") == "running"


def test_a_clock_of_a_limit_goes_on_while_gpus_are_lent(used: Used) -> None:
    """Of five GPUs that the queue holds three are to be given back in time, and an idle job lends two."""
    used.site.submit("busy", ("busy", "forever"), gpus=3)
    used.hoard(msgspec.structs.replace(POLICY, action="lend", grace=Duration(0)))
    quota = Quota(used.site.declared[0].gpu_type, guaranteed=MilliGpu(0), max=MilliGpu.gpus(2))
    used.site.policy = policy_of((Queue(QueueName("q"), quota=(quota,)),), (), used.site.policy.scheduling)
    used.site.one_pass()
    (clock,) = used.site.store.ledger.clocks()
    busy = {gpu for claim in used.site.store.ledger.claims() if claim.job == "busy" for gpu in claim.tasks[0].devices}
    used.minutes(6, lambda gpu: 90.0 if gpu in busy else 0.0)
    assert used.kinds() == ["idle", "lent"]
    done = used.site.one_pass()
    assert used.site.store.ledger.clocks() == (clock,)
    (told,) = broken_limits_of(done)
    assert (told.held.number, told.max.number, told.deadline) == (5, 2, clock.deadline)
    assert told.jobs == ("busy",), "what is lent is no use of the queue any more"


def test_activity_of_one_gpu_ends_it_and_it_begins_anew(used: Used) -> None:
    used.hoard(msgspec.structs.replace(POLICY, action="end"))
    used.minutes(5)
    busy = used.site.store.ledger.claims()[0].tasks[0].devices[1]
    used.minutes(1, lambda gpu: 60.0 if gpu == busy else 0.0)
    assert used.kinds() == ["idle", "idle-over"]
    assert (used.cause("idle-over"), used.mark()) == ("it does something again", None)
    used.minutes(3)
    assert used.kinds() == ["idle", "idle-over"]
    used.minutes(1)
    assert used.kinds() == ["idle", "idle-over", "idle"]


def test_what_is_not_measured_is_not_idle(used: Used) -> None:
    used.hoard(msgspec.structs.replace(POLICY, action="end", grace=Duration(10 * MINUTE)))
    used.minutes(6, lambda _: None)
    assert used.kinds() == []
    # Of the minutes since it began three quarters have to be known.
    used.minutes(4)
    assert used.kinds() == ["idle"]
    used.minutes(4, lambda _: None)
    assert used.kinds() == ["idle", "idle-over"]
    assert used.cause("idle-over") == "it is not known any more what it does"
    assert used.site.state(JOB) == "running"


@pytest.mark.parametrize("ahead", [0, 10])
def test_minutes_by_a_clock_that_is_far_ahead_are_held_against_no_job(used: Used, ahead: int) -> None:
    """Those of an earlier job would be taken for those of this one, whose own lie after what is asked for."""
    used.minutes(12)
    earlier = used.book.due(10)
    used.site.only_plane = replace(used.site.only_plane, clock=SteppedClock(used.site.clock, -ahead * MINUTE))
    used.hoard()
    used.minutes(5, lambda _: 100.0 if ahead else 0.0)
    if ahead:
        used.book.due(10)
        used.book.give_back(earlier)
    used.minutes(1)
    assert used.kinds() == ([] if ahead else ["idle"])


@pytest.mark.thorough
def test_of_a_board_that_is_not_told_of_nothing_is_known(used: Used) -> None:
    used.hoard()
    silent = used.site.store.ledger.claims()[0].tasks[0].devices[0]
    used.minutes(8, lambda gpu: None if gpu == silent else 0.0)
    assert used.kinds() == []


@pytest.mark.thorough
def test_an_exemption_ends_by_itself_and_says_why(used: Used) -> None:
    until = used.site.clock.now().after(Duration(7 * MINUTE))
    exempt = IdleExemption(until, "moves data", users=("ada",))
    used.hoard(msgspec.structs.replace(POLICY, exempt=(exempt,)))
    used.minutes(6)
    assert used.kinds() == []
    used.minutes(2)
    assert used.kinds() == ["idle"]
    used.allow(msgspec.structs.replace(POLICY, exempt=(msgspec.structs.replace(exempt, until=until.after(DAY)),)))
    used.minutes(1)
    assert used.cause("idle-over").endswith(": moves data")


@pytest.mark.thorough
def test_a_policy_that_goes_takes_its_warning_with_it(used: Used) -> None:
    used.hoard(msgspec.structs.replace(POLICY, action="end"))
    used.minutes(5)
    used.allow()
    used.minutes(4)
    assert (used.kinds(), used.site.state(JOB)) == (["idle", "idle-over"], "running")


@pytest.mark.thorough
def test_another_control_plane_knows_the_warning_and_reads_what_is_kept(used: Used) -> None:
    used.hoard(msgspec.structs.replace(POLICY, action="end"))
    epoch = used.site.store.ledger.lead("only", used.site.clock.now(), Duration(10_000))
    used.minutes(3)
    used.site.store.gpu_uses.keep(epoch, used.book.due(10))
    used.minutes(2)
    assert used.kinds() == ["idle"]
    kept = used.book.due(10)
    used.site.store.gpu_uses.keep(used.site.store.ledger.lead("only", used.site.clock.now(), Duration(10_000)), kept)
    used.site.clock.advance(20_000)
    other = replace(used.site.plane("other"), idle=IdleWatch(used.book, used.site.store.gpu_uses))
    used.site.only_plane = other
    used.minutes(1)
    assert used.kinds() == ["idle"]
    used.minutes(2)
    used.site.passes(4)
    assert used.kinds() == ["idle", "asked-to-stop", "cancelled"]
    assert one_pass(other).idle


@pytest.mark.thorough
def test_progress_is_a_heartbeat(used: Used) -> None:
    both = msgspec.structs.replace(GPUS, no_progress_for=Duration(4 * MINUTE))
    used.hoard(msgspec.structs.replace(POLICY, idle_when=both), ("hang", "1", "4m"))
    used.minutes(7)
    assert used.kinds() == []
    used.minutes(3)
    assert used.kinds() == ["idle"]


@pytest.mark.thorough
def test_without_a_policy_nothing_is_judged(used: Used) -> None:
    used.allow()
    used.site.submit(JOB, ("busy", "forever"))
    used.site.rest()
    used.minutes(6)
    assert used.kinds() == []


def test_a_snapshot_that_is_handed_out_says_what_gpus_did_and_a_review_whom_a_policy_warns(used: Used) -> None:
    used.hoard(msgspec.structs.replace(POLICY, action="notify"))
    busy = used.site.store.ledger.claims()[0].tasks[0].devices[0]
    used.minutes(6, lambda gpu: 3.0 if gpu == busy else 0.0)
    used.site.store.gpu_uses.keep(used.site.store.ledger.lead("only", used.site.clock.now(), LEASE), used.book.due(10))
    snapshot = used.site.one_pass(1).snapshot
    use = KnownUse(LatestUse(used.book.latest, used.site.clock), used.site.store.gpu_uses)
    told = with_quiet_gpus(snapshot, use, used.site.clock.now())
    (job,) = told.jobs
    assert [quiet.below for quiet in job.quiet] == [5, 10, 20]
    assert with_quiet_gpus(snapshot, use._replace(past=None), used.site.clock.now()) is snapshot

    def caught(*policies: IdlePolicy) -> list[tuple[str, str, bool]]:
        before, after = (
            Compiled(used.site.policy, used.site.declared, Operations(idle=some)) for some in ((POLICY,), policies)
        )
        return [(one.job, one.action, one.already) for one in idle_catches(told, before, after)]

    def policy(below: float, minutes: int, action: IdleAction = "lend") -> IdlePolicy:
        evidence = IdleEvidence(GpuActivityBelow(below, Duration(minutes * MINUTE)))
        return msgspec.structs.replace(POLICY, idle_when=evidence, action=action)

    assert caught() == []
    assert caught(policy(5, 5)) == [(JOB, "lend", False)]
    assert caught(policy(2, 5)) == []
    assert caught(policy(5, 20)) == []
    exempt = IdleExemption(used.site.clock.now().after(DAY), "x", jobs=(JOB,))
    assert caught(msgspec.structs.replace(policy(5, 5), exempt=(exempt,))) == []
