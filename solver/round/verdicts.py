"""Why the jobs that do not start wait: every constraint that binds them after the round's starts, as typed reasons."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from solver.capacity.free_capacity import FreeCapacity
from solver.capacity.reserved_view import NOBODY, Against, seen
from solver.model.cluster import GpuType
from solver.model.inflight import Reservation
from solver.model.quantities import Instant, MilliGpu
from solver.model.workload import Job, JobName, JobSpec, QueueName
from solver.placement.placement import place
from solver.placement.starts import JobStart
from solver.placement.views import fits
from solver.plan.reasons import (
    AnyReason,
    BeyondGuarantee,
    FallbackLater,
    Outranked,
    QuotaMax,
    ReservedFor,
    RoundCutShort,
    StrictOrder,
)
from solver.policy.policy import Policy
from solver.policy.precedence import ordering_of
from solver.policy.tree import QuotaLine
from solver.preemption.host_claim import alone_among
from solver.queueing.demand import StartCandidate
from solver.queueing.entry import back_off_ends
from solver.queueing.fallback import as_open_at, fallback_opens, types_of
from solver.queueing.strict_queues import Lines
from solver.quota.entitlement import QuotaHeadroom, Shares
from solver.quota.guarantees import too_small
from solver.quota.host_dues import HostDues
from solver.quota.host_guarantees import HeldAlone
from solver.quota.host_shares import HostShares
from solver.quota.options import Option
from solver.quota.users import HostLine, UserLine, UserRoom, beside_least
from solver.round.admission import Admission
from solver.round.guarantees import entitled_first, fragmented, host_max, host_not_lent, not_lent, with_share
from solver.round.lending_ahead import LendingAhead
from solver.round.quota_changes import QuotaAhead
from solver.round.shortage import Shortage
from solver.round.user_reasons import UserReasons

AHEAD_NAMED_MAX = 3  # in an `outranked` reason; the rest are counted


@dataclass(slots=True)
class Waiting:
    """Explains waiting candidates against the room and the headroom before and after the round's starts."""

    policy: Policy
    now: Instant
    shares: Shares
    before: FreeCapacity
    after: FreeCapacity
    starts: Sequence[JobStart]
    stage: str
    candidates: Sequence[StartCandidate]
    reservations: Sequence[Reservation] = ()
    _before: QuotaHeadroom = field(init=False)
    _headroom: QuotaHeadroom = field(init=False)
    _users: UserRoom = field(init=False)
    _of_users: UserReasons = field(init=False)
    _lines: Lines = field(init=False)
    _room: Shortage = field(init=False)
    _carried: HostShares = field(init=False)
    _host: HostDues = field(init=False)
    _ahead: QuotaAhead = field(init=False)
    _lending: LendingAhead = field(init=False)
    _known: dict[object, tuple[AnyReason, ...]] = field(default_factory=dict)
    _held: dict[object, tuple[AnyReason, ...]] = field(default_factory=dict)
    _lacking: dict[object, tuple[AnyReason, ...]] = field(default_factory=dict)
    _fitted: dict[object, bool] = field(default_factory=dict)
    _rivals: dict[tuple[frozenset[GpuType], QueueName], Outranked] = field(default_factory=dict)
    _starts_of_type: dict[GpuType, set[int]] = field(default_factory=lambda: defaultdict(set))
    _starts_of_queue: dict[QueueName, set[int]] = field(default_factory=lambda: defaultdict(set))

    def __post_init__(self) -> None:
        self._before, self._headroom = QuotaHeadroom(self.shares), QuotaHeadroom(self.shares)
        self._users = UserRoom(self.shares.users)
        self._lines, self._room = Lines(self.candidates), Shortage(self.after)
        self._carried = HostShares.of(self.after.nodes, self.policy.scheduling.host_share)
        self._host = self.shares.host.after(alone_among(self.starts))
        self._ahead, self._lending = QuotaAhead(self.policy, self._headroom), LendingAhead(self._headroom)
        for number, start in enumerate(self.starts):
            self._starts_of_queue[start.queue].add(number)
            for gpu_type in start.charge:
                self._starts_of_type[gpu_type].add(number)
            self._headroom.take(start.queue, start.charge)
            self._users.take(start.candidate.job, start.charge, start.beside)
            self._lines.start(start.candidate)
        started = {start.candidate.job.name for start in self.starts}
        waiting = (known for known in self.candidates if known.job.name not in started)
        self._of_users = UserReasons.after(self.shares, self._users, waiting)

    def reasons(self, candidate: StartCandidate) -> tuple[AnyReason, ...]:
        """All binding constraints of one candidate, the most telling first."""
        behind = tuple(self._lines.blocker(candidate, option) for option in candidate.options)
        alike = (candidate.likeness, behind, self._opens_late(candidate))
        if alike not in self._known:
            self._known[alike] = tuple(dict.fromkeys(self._explain(candidate, behind)))
        return (*self._known[alike], *self._of_users.of(candidate))

    def reasons_on_hold(self, job: Job, admission: Admission) -> tuple[AnyReason, ...]:
        """The queues that hold a job back, and what would bind it if they did not."""
        spec = job.spec
        options = as_open_at(admission.options, job, self.policy, self.now)
        opens = fallback_opens(job, self.policy) if any(option.inside_only for option in options) else None
        alike = (spec.queue, spec.priority_class, spec.task_groups, spec.effective_topology, job.user, opens)
        if alike not in self._held:
            constraints = self._constraints(job, options, [None] * len(options))
            self._held[alike] = tuple(dict.fromkeys((*admission.holds, *constraints)))
        return self._held[alike]

    def _explain(self, candidate: StartCandidate, behind: Sequence[JobName | None]) -> Iterable[AnyReason]:
        constraints = self._constraints(
            candidate.job, candidate.options, behind, inside_only=candidate.inside_only, against=candidate.against
        )
        if not constraints:
            yield RoundCutShort(self.stage)
        elif not all(isinstance(reason, StrictOrder) for reason in constraints) and any(
            self._would_have_fitted(candidate, option) for option in candidate.options
        ):
            yield self._outranked(candidate)
        else:
            now = [reason for reason in constraints if not (isinstance(reason, QuotaMax) and reason.is_ahead)]
            yield from fragmented(candidate, now, self._headroom)
        yield from with_share(candidate, constraints, self._headroom, self._carried)
        yield from entitled_first(candidate, constraints, self._headroom)
        yield from self._ahead.of(candidate)

    def _constraints(
        self,
        job: Job,
        options: Sequence[Option],
        behind: Sequence[JobName | None],
        *,
        inside_only: bool = False,
        against: Against = NOBODY,
    ) -> tuple[AnyReason, ...]:
        """What binds a job under every one of its options; () where it could start under one of them.

        `behind`: the job of its strict queue that it would delay under each.
        """
        binding = [
            (
                *(self._beyond_guarantee(job, option) if inside_only else self._too_early(job, options, option)),
                *self._binding(job, option, first, against),
            )
            for option, first in zip(options, behind, strict=True)
        ]
        if not all(binding):
            return ()
        each = zip(binding, options, strict=True)
        return tuple(
            reason for reasons, option in each for reason in (*reasons, *self._lending.of(job.spec, option, reasons))
        )

    def _binding(self, job: Job, option: Option, first: JobName | None, against: Against) -> Iterable[AnyReason]:
        if first is not None:
            yield StrictOrder(job.spec.queue, ordering_of(self.shares.tree, job.spec.queue).by, first)
        for line in self._headroom.blocking(job.spec.queue, option.charge):
            yield self._quota_max(line, option.charge[line.gpu_type])
        yield from not_lent(job.spec.queue, option.charge, self._headroom.weights, self.shares.tree)
        if not any(option.charge.values()):
            yield from host_not_lent(self._host, HeldAlone(job.spec.queue, beside_least(job.spec)))
        for line_of_cap in self._users.blocking(job, option.charge):
            if isinstance(line_of_cap, HostLine):
                yield self._host_max(line_of_cap, job)
            else:
                yield self._user_max(line_of_cap, option.charge[line_of_cap.gpu_type])
        yield from self._lack(job.spec, option) or self._reserved(job.spec, option, against)

    def _lack(self, spec: JobSpec, option: Option) -> tuple[AnyReason, ...]:
        """What is missing on the nodes: the same for gangs of the same shape, whatever their queues."""
        shape = _shape_of(spec, option)
        if shape not in self._lacking:
            self._lacking[shape] = tuple(self._room.reasons(spec, option))
        return self._lacking[shape]

    def _reserved(self, spec: JobSpec, option: Option, against: Against) -> Iterable[ReservedFor]:
        """The reservations that alone keep a gang from its room; all that hold it back where only several together do."""
        if place(seen(self.after, against).copy(), spec, option) is not None:
            return
        telling = {holder for holder in against if place(seen(self.after, {holder}), spec, option) is None}
        for held in self.reservations:
            if held.holder in (telling or against):
                gpus = MilliGpu(sum(task.gpus for task in held.tasks))
                document = self.policy.reservation(held.holder)
                origin = document.origin if document else ""
                until = held.until if document and document.job is None else None
                yield ReservedFor(held.holder, held.start, gpus, until, origin)

    def _opens_late(self, candidate: StartCandidate) -> Instant | None:
        """When the types are open to it that are not yet; None: all are."""
        early = any(option.inside_only for option in candidate.options)
        return fallback_opens(candidate.job, self.policy) if early else None

    def _too_early(self, job: Job, options: Sequence[Option], option: Option) -> Iterable[FallbackLater]:
        """A type further down the wish list that is not open to it yet, and of which it is not guaranteed enough."""
        if option.inside_only and not self._headroom.entitled.holds(job.spec.queue, option.charge):
            first = min(options, key=lambda known: known.fallback)
            yield FallbackLater(tuple(types_of(first)), tuple(types_of(option)), fallback_opens(job, self.policy))

    def _beyond_guarantee(self, job: Job, option: Option) -> Iterable[BeyondGuarantee]:
        """The guarantees on its path that have too little left."""
        tree, left = self.shares.tree, self._headroom.entitled.left
        ends = back_off_ends(job, self.policy)
        until = ends if ends > self.now else None
        for gpu_type, wanted in option.charge.items():
            lines = tree.lines(job.spec.queue, gpu_type)
            for line in too_small(tree, self.shares.guaranteed, lines, left, wanted):
                room, origin = MilliGpu(left(line)), self._origin(line.queue, gpu_type)
                yield BeyondGuarantee(line.queue, gpu_type, room, MilliGpu(wanted), until, origin)

    def _quota_max(self, line: QuotaLine, wanted: int) -> QuotaMax:
        used = MilliGpu(self.shares.used.get(line, 0) + self._headroom.taken.get(line, 0))
        queue_max = MilliGpu(self.shares.max[line])
        origin = self._origin(line.queue, line.gpu_type)
        return QuotaMax(line.queue, line.gpu_type, queue_max, used, MilliGpu(wanted), origin)

    def _user_max(self, line: UserLine, wanted: int) -> QuotaMax:
        most, used = MilliGpu(self.shares.users.most(line)), MilliGpu(self._users.used(line))
        origin = self._origin(line.queue, line.gpu_type)
        return QuotaMax(line.queue, line.gpu_type, most, used, MilliGpu(wanted), origin, line.user)

    def _host_max(self, line: HostLine, job: Job) -> QuotaMax:
        wanted = dict(self.shares.users.host_charges(job.spec.queue, job.user, beside_least(job.spec)))[line]
        return host_max(self.shares, line, self._users.used(line), wanted)

    def _origin(self, queue: QueueName, gpu_type: GpuType) -> str:
        entry = self.shares.tree.by_name[queue].quota_for(gpu_type)
        return entry.origin if entry else ""

    def _would_have_fitted(self, candidate: StartCandidate, option: Option) -> bool:
        job = candidate.job
        if not self.starts or not self._before.allows(job.spec.queue, option.charge):
            return False
        if UserRoom(self.shares.users).blocking(job, option.charge):
            return False
        if option.inside_only and not self._before.entitled.holds(job.spec.queue, option.charge):
            return False
        alike = (_shape_of(job.spec, option), candidate.against)
        if alike not in self._fitted:
            self._fitted[alike] = fits(self.before, candidate, option)
        return self._fitted[alike]

    def _outranked(self, candidate: StartCandidate) -> Outranked:
        types = frozenset(gpu_type for option in candidate.options for gpu_type in option.charge)
        queue = candidate.job.spec.queue
        if (types, queue) not in self._rivals:
            of_types = (self._starts_of_type[gpu_type] for gpu_type in types)
            rivals = sorted(self._starts_of_queue[queue].union(*of_types)) if types else range(len(self.starts))
            named = tuple(self.starts[number].candidate.job.name for number in rivals[:AHEAD_NAMED_MAX])
            self._rivals[types, queue] = Outranked(named, max(0, len(rivals) - AHEAD_NAMED_MAX))
        return self._rivals[types, queue]


def _shape_of(spec: JobSpec, option: Option) -> object:
    """The same for gangs that find a place where the other does, served this way."""
    return spec.task_groups, spec.topology, spec.data, option.gpu_types, option.shapes
