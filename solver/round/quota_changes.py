"""What hours of quota that are to come mean for a job that waits: from when on its queue may hold it, or guarantees it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from solver.model.cluster import GpuType
from solver.model.quantities import Instant, MilliGpu
from solver.model.workload import QueueName
from solver.plan.reasons import QuotaChanges
from solver.policy.policy import Policy, QuotaChange
from solver.policy.tree import QueueTree, QuotaLine
from solver.policy.windows import kinds_ahead
from solver.queueing.demand import StartCandidate
from solver.quota.entitlement import Charge, QuotaHeadroom, Shares, under_tree


@dataclass(frozen=True)
class QuotaAhead:
    """`headroom`: what the round leaves, under the policy as it stands. Of every kind of hours the next counts."""

    policy: Policy
    headroom: QuotaHeadroom

    def of(self, candidate: StartCandidate) -> Iterator[QuotaChanges]:
        """The first change by which no max is in a job's way any more, or by which it lies inside its guarantees."""
        queue, charges = candidate.job.spec.queue, [option.charge for option in candidate.options]
        allowed, inside = _stands(self.headroom, queue, charges)
        if inside:
            return
        for at, shares in self._later:
            then = self.headroom.under(shares)
            allowed_then, inside_then = _stands(then, queue, charges)
            if inside_then or (allowed_then and not allowed):
                yield from self._said(at, queue, charges, shares)
                return

    @cached_property
    def _later(self) -> list[tuple[Instant, Shares]]:
        now = self.headroom.shares
        return [
            (at, under_tree(now, QueueTree.of(then), (), now.cluster.gpus)) for at, then in kinds_ahead(self.policy)
        ]

    def _said(self, at: Instant, queue: QueueName, charges: Iterable[Charge], then: Shares) -> Iterator[QuotaChanges]:
        """The line nearest to the job that is another then."""
        now = self.headroom.shares
        lines = [line for charge in charges for gpu_type in charge for line in now.tree.lines(queue, gpu_type)]
        for what, before, after in (("guaranteed", now.guaranteed, then.guaranteed), ("max", now.max, then.max)):
            line = next((known for known in lines if before.get(known) != after.get(known)), None)
            if line is not None:
                yield change_of(line, at, self.policy, now=before.get(line), then=after.get(line), of_max=what == "max")
                return


def change_of(
    line: QuotaLine,
    at: Instant,
    policy: Policy,
    *,
    now: int | None,
    then: int | None,
    of_max: bool,
    refused: bool = False,
) -> QuotaChanges:
    """What to say of a line that is another from an instant on."""
    queue = policy.queue(line.queue)
    change = next((one for one in queue.ahead if one.at == at), None) if queue else None
    before, after = (None if milli is None else MilliGpu(milli) for milli in (now, then))
    hours, origin = (change.hours, _origin(change, line.gpu_type)) if change else ((), "")
    return QuotaChanges(*line, at, "max" if of_max else "guaranteed", before, after, hours, origin, refused)


def _origin(change: QuotaChange, gpu_type: GpuType) -> str:
    return next((entry.origin for entry in change.quota if entry.gpu_type == gpu_type), "")


def _stands(headroom: QuotaHeadroom, queue: QueueName, charges: Iterable[Mapping[GpuType, int]]) -> tuple[bool, bool]:
    """Whether a max lets it start in one of its ways, and whether it then lies inside its guarantees."""
    allowed = [charge for charge in charges if headroom.allows(queue, charge)]
    return bool(allowed), any(headroom.entitled.holds(queue, charge) for charge in allowed)
