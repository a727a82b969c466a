"""What the loop does about interventions: it ends those that are over, and takes back what was promised to jobs that are held."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from reconciler.control.leader_actions import LeaderActions
from reconciler.lifecycle.interventions.effects import held_jobs
from reconciler.lifecycle.interventions.endings import endings
from reconciler.lifecycle.jobs.states import state_after
from solver.model.cluster import Node
from solver.model.workload import JobName
from solver.policy.policy import Policy


@dataclass(frozen=True, slots=True)
class InterventionController(LeaderActions):
    """What a leader does about interventions."""

    def settle(self, policy: Policy, declared: Iterable[Node]) -> int:
        """Make true what follows from interventions, the policy and the clock; returns how much that was."""
        interventions, now = self.plane.interventions.in_force(), self.plane.clock.now()
        if not interventions:
            return 0
        records = self.plane.jobs.live_jobs()
        over = tuple(endings(interventions, now, policy, declared, {record.name for record in records}))
        for each in over:
            number = each.intervention.number
            # A user may have ended it, or put another in its place, since it was read: then that is on record.
            with self.plane.together():
                if self.plane.interventions.end(self.epoch, number, now, each.ending, self.plane.holder):
                    self.note(each.ending, each.intervention.subject.name, each.cause)
        return len(over) + self._take_back(held_jobs(interventions, records, policy, now))

    def _take_back(self, waiting: Iterable[JobName]) -> int:
        """Nothing is kept free for a job that may not begin: others could use it, and rounds do not know of the job."""
        ledger = self.plane.ledger
        holding = {claim.job for claim in ledger.claims()}
        promised = {intent.job for intent in ledger.intents() if intent.kind == "nominate"}
        promised |= {reservation.holder for reservation in ledger.reservations()}
        taken = sorted((promised - holding).intersection(waiting))
        for job in taken:
            now = state_after(self.plane.jobs.job(job), ledger.last_attempt(job))
            with self.plane.together():
                ledger.withdraw(self.epoch, job)
                ledger.unreserve(self.epoch, job)
                self.note("withdrawn", job, "it is held by hand", now)
        return len(taken)
