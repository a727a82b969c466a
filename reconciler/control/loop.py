"""The pass of every control plane: look, settle, observe, decide, record, act, explain, tell. Each starts from what is true.

What differs between a ledger of one's own and an API server is a Site, which is handed in. There is one order of things, so that
what one kind of cluster tells, the other tells too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from reconciler.control.control import PolicyInForce, PolicySource
from reconciler.control.fallback import CheckedDeed, CheckedPlan
from reconciler.control.lending import with_lent
from reconciler.control.passes import Laps, Pass
from reconciler.lifecycle.jobs.backend_reports import BackendReports
from reconciler.model.clock import Clock
from reconciler.model.intervention_record import Intervention
from reconciler.protocols.backend import Epoch
from reconciler.protocols.rounds import RoundRecord
from solver.model.inflight import ConvergenceClock
from solver.model.quantities import Instant
from solver.model.snapshot import Snapshot
from solver.model.workload import JobName
from solver.plan.plan import Plan
from solver.policy.policy import Policy
from solver.policy.windows import policy_at
from solver.preemption.departures import clocks_of


class ClockNews(NamedTuple):
    """One line on record: that a limit was broken, or is kept again."""

    kind: str
    subject: str
    cause: str


class Look(Protocol):
    """What a pass saw first. `policy`: as much of the one in force as can be kept in this cluster."""

    @property
    def policy(self) -> Policy: ...  # noqa: D102

    @property
    def sighted(self) -> BackendReports: ...  # noqa: D102


LookT = TypeVar("LookT", bound=Look)


class Site(Protocol[LookT]):
    """One kind of cluster, for one pass. Each part may be interrupted anywhere and come again in the next pass.

    Raises NotLeaderError or StaleEpochError (another leads: stand by), what its cluster raises where it does not answer (try
    again), StoreUnusableError (a person must act).
    """

    @property
    def clock(self) -> Clock: ...  # noqa: D102

    @property
    def policies(self) -> PolicySource: ...  # noqa: D102

    def lead(self) -> Epoch:
        """Be sure to lead, and under which epoch."""

    async def look(self, in_force: PolicyInForce) -> LookT:
        """See what is so in the cluster, not before it shows what the pass before did."""

    def accrue(self, look: LookT) -> None:
        """Bring past use up to date, before the pass changes what jobs hold."""

    async def settle(self, look: LookT) -> int:
        """Make true what follows from what was seen; how much that was."""

    def observe(self, look: LookT) -> tuple[Snapshot, Policy]:
        """Join it all into the input of a round, each job in its own queue."""

    def lent(self) -> Collection[JobName]:
        """Idle jobs that lend what they hold."""

    def keep_clocks(self, clocks: Sequence[ConvergenceClock], told: Sequence[ClockNews]) -> None:
        """Remember since when which limits are broken, with what is put on record of that."""

    async def decide(self, snapshot: Snapshot, policy: Policy, laps: Laps) -> CheckedDeed:
        """A plan that may be acted on. Raises PlanRefusedError, NoPlanError."""

    async def conclude(self, deed: CheckedDeed, snapshot: Snapshot, policy: Policy, laps: Laps) -> CheckedPlan:
        """All of it, once it was acted on."""

    def keep_round(self, record: RoundRecord) -> int | None:
        """Put the round on record, if it says something new: one that has a number in place of what was kept of it."""

    async def act(self, plan: Plan, look: LookT) -> int:
        """Make the steps true; how many were refused, which the next pass then sees."""

    async def keep_free(self, plan: Plan, look: LookT) -> None:
        """Make those steps true that only keep something free: they come last."""

    async def tell(self, plan: Plan, snapshot: Snapshot, look: LookT) -> None:
        """Say it inside the cluster."""

    def stand_on(self, record: RoundRecord, number: int | None) -> None:
        """A round is over, kept under a number if it said anything new: jobs that come may be started on what it left."""

    def by_hand(self, look: LookT) -> tuple[Intervention, ...]:
        """What people have put in force."""


async def take_pass(site: Site[LookT], hear: Callable[[Pass], None] = lambda _: None) -> tuple[Pass, LookT]:
    """Take one step towards what Git wants. It may be killed anywhere and called again.

    `hear` is told of the pass once it was acted on, and again as soon as all of it is known, before anything is made ready for jobs
    that come next.
    Raises what the parts of the site do, and NoPolicyError (try again).
    """
    laps = Laps(site.clock)
    epoch = site.lead()
    in_force = site.policies.current()
    look = await site.look(in_force)
    laps.end("sight")
    site.accrue(look)
    settled = await site.settle(look)
    laps.end("settle")
    observed, in_git = site.observe(look)
    # Clocks are those of the limits in Git: they go on whatever is lent meanwhile.
    clocked = _with_clocks(site, observed, in_git, in_force.revision)
    snapshot, policy = with_lent(clocked, in_git, site.lent())
    laps.end("observe")
    deed = await site.decide(snapshot, policy, laps)

    def record(number: int, plan: Plan, solution: str, *, is_whole: bool) -> RoundRecord:
        known = snapshot.time, in_force.revision, snapshot, policy
        return RoundRecord(number, *known, plan, laps.phase_ms, solution, is_whole)

    def passed(known: CheckedPlan, number: int | None) -> Pass:
        of = epoch, in_force.revision, policy, snapshot, known.plan, number, settled, refused, dict(laps.phase_ms)
        unlent = None if policy is in_git else (clocked, in_git)
        said = known.fault, known.shortfalls, deed.solved.uses, known.is_whole, unlent
        return Pass(*of, look.sighted, by_hand, *said)

    # The record comes before the deed, so that no deed is ever without one.
    begun = site.keep_round(record(0, *deed.solved.deed, is_whole=False))
    refused = await site.act(deed.plan, look)
    laps.end("act")
    by_hand = site.by_hand(look)
    hear(passed(CheckedPlan(*deed.solved.deed, deed.fault, is_whole=False), begun))
    # What takes as long again, and nobody has to wait for: why others wait, until when, and what is kept free for them.
    whole = await site.conclude(deed, snapshot, policy, laps)
    plan = whole.plan
    number = site.keep_round(record(begun or 0, plan, whole.solution, is_whole=True)) if whole.is_whole else begun
    await site.keep_free(plan, look)
    laps.end("keep-free")
    await site.tell(plan, snapshot, look)
    done = passed(whole, number)
    hear(done)
    if whole.is_whole:
        site.stand_on(record(number or 0, plan, whole.solution, is_whole=True), number)
    return done, look


def _with_clocks(site: Site[LookT], snapshot: Snapshot, policy: Policy, commit: str) -> Snapshot:
    """Keep the clocks of limits that are broken, say which began and ended, and put them into the snapshot."""
    before, clocks = snapshot.in_flight.convergence, clocks_of(snapshot, policy, commit)
    if clocks == before:
        return snapshot
    told = list[ClockNews]()
    for clock in sorted(set(clocks) - set(before), key=lambda clock: clock.queue):
        since = _since_hours(policy, clock, snapshot.time) or clock.commit[:12]
        limit = f"holds more than its max of {clock.told} since {since}"
        told.append(ClockNews("limit-broken", clock.queue, f"{limit}; it is to be kept by {clock.deadline}"))
    for clock in sorted(set(before) - set(clocks), key=lambda clock: clock.queue):
        told.append(ClockNews("limit-kept", clock.queue, f"no job need leave for the max of {clock.told}"))
    site.keep_clocks(clocks, told)
    return msgspec.structs.replace(snapshot, in_flight=msgspec.structs.replace(snapshot.in_flight, convergence=clocks))


def _since_hours(policy: Policy, clock: ConvergenceClock, now: Instant) -> str:
    """The end of the hours by which a limit fell; "" where it was another change."""
    at = max((edge for edge in policy.quota_edges if edge <= now), default=None)
    before = policy_at(policy, Instant(at - 1)).queue(clock.queue) if at is not None else None
    entry = before.quota_for(clock.gpu_type) if before is not None else None
    fell = entry is not None and (entry.max is None or entry.max > clock.limit)
    return f"its hours changed at {at}" if fell else ""
