"""Follows Git beside other control planes on the same store: the leader decides, the others have in force what it has."""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.gitops.source.standing_policy import StandingPolicy
from reconciler.model.git_status import PolicyStatus
from reconciler.protocols.backend import StaleEpochError
from reconciler.store.store import SqlStore


@dataclass(frozen=True, slots=True)
class SharedPolicy:
    """In place of a StandingPolicy for a control plane that reconciles.

    Approvals count once, and plans are made of what a pass saw, which only the leader has: so one process judges revisions.
    A new leader begins from what the old one had in force, and judges what came after that.
    """

    standing: StandingPolicy
    store: SqlStore
    holder: str

    def reconcile(self) -> PolicyStatus:
        """Take over what is in force; where this process leads, look for more. Raises StoreUnusableError."""
        in_force = self.store.following.in_force()
        if in_force and in_force != self.standing.status().last_applied_revision:
            self.standing.adopt(in_force)
        epoch = self.store.ledger.epoch_of(self.holder)
        if epoch is None:
            return self.standing.status()
        status = self.standing.reconcile()
        if status.last_applied_revision not in ("", in_force):
            try:
                self.store.following.put_in_force(epoch, status.last_applied_revision)
            except StaleEpochError:
                # Another leads since: what it has in force is adopted at the next look.
                return self.standing.status()
        return status
