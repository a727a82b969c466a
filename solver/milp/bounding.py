"""How good a round that evicts could have been in its entitled layers: bounds for its certificate, by a program of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from solver.capacity.free_capacity import FreeCapacity
from solver.milp.certificate import Proof
from solver.milp.entitled import EntitledBound, Manner
from solver.milp.optimiser import Effort
from solver.model.arrays import Floats
from solver.model.snapshot import Snapshot
from solver.model.workload import JobName
from solver.placement.starts import JobStart
from solver.plan.plan import Certificate
from solver.policy.policy import Policy
from solver.policy.reclaim import reclaim_within
from solver.preemption.eviction_candidates import EvictionCandidates
from solver.preemption.freeable import Freeable
from solver.preemption.new_nomination import NewNomination
from solver.queueing.demand import StartCandidate, sub_layers_of
from solver.quota.entitlement import Shares
from solver.quota.vacated import Tier
from solver.quota.victims import PreemptorJob

WHOLE_COLUMNS_MAX = 250
"""In programs of so few columns gangs are whole. In larger ones they may be parts: bounds are up to three per cent higher in sum,
and take a tenth of the time (docs/solver.md)."""


@dataclass(frozen=True, slots=True)
class Bounding:
    """A round that evicts, and what it was decided from.

    `shares` and `capacity` are those before it; `soon` is the room once all jobs have left that had been asked to.
    """

    snapshot: Snapshot
    policy: Policy
    candidates: Sequence[StartCandidate]
    shares: Shares
    evictable: EvictionCandidates
    capacity: FreeCapacity
    soon: FreeCapacity
    starts: Sequence[JobStart]
    nominations: Sequence[NewNomination]
    displacing: Mapping[JobName, Tier]

    def proof(self, certificate: Certificate) -> Proof:
        """What is asked of entitled layers, beside what is known of them."""
        stated, limits = self.stated(), self.policy.scheduling.solver
        program = stated.builder.build()
        if len(program.lower) > WHOLE_COLUMNS_MAX:
            program = replace(program, integer=np.zeros_like(program.integer))
        effort = Effort(limits.gap, limits.time_limit.seconds, limits.seed)
        return Proof(certificate, program, self.point(stated), effort)

    def stated(self) -> EntitledBound:
        """The program of the most that this round could have served, whatever it evicted."""
        layers = [layer for layer in sub_layers_of(self.candidates) if not layer.growth]
        most = Freeable(self.evictable, self._preemptors(), self.soon, self.policy.scheduling.evictions.moves_per_round)
        bound = EntitledBound(self.candidates, layers, self.shares, self.capacity, most)
        bound.state()
        return bound

    def point(self, stated: EntitledBound) -> Floats:
        """What the round does, as a point of that program."""
        free: list[tuple[JobStart, Manner]] = [(start, "free") for start in self.starts]
        promised = [(nomination.start, nomination.tier) for nomination in self.nominations]
        served = [(start, self._manner(start, manner)) for start, manner in (*free, *promised)]
        holders = (victim.holder for nomination in self.nominations for victim in nomination.victims)
        return stated.point(served, [(holder.job.spec.queue, holder.charge) for holder in holders])

    def _manner(self, start: JobStart, otherwise: Manner) -> Manner | None:
        """In which manner these layers count it; None: in none, though its queue holds it."""
        tier = self.displacing.get(start.candidate.job.name)
        return otherwise if tier is None else "displacing" if tier == "entitled" else None

    def _preemptors(self) -> Iterator[PreemptorJob]:
        for candidate in self.candidates:
            job, known = candidate.job, self.policy.priority_class(candidate.job)
            within = reclaim_within(self.policy, self.shares.tree, job.spec.queue)
            yield PreemptorJob(job, known.value if known else 0, self.snapshot.time >= job.submitted_at.after(within))
