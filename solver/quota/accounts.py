"""What queues and users hold, kept up to date as jobs start and end."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from solver.model.workload import Job, QueueName
from solver.policy.tree import QuotaLine
from solver.quota.dominance import HostUse, beside_wanted
from solver.quota.entitlement import Charge, Shares, add_up_again
from solver.quota.users import CapLine


@dataclass(frozen=True, slots=True)
class Accounts:
    """`shares` are over the other fields, and follow them; what is fair is not among them, for that depends on who waits; nor what
    queues claim of guarantees that are shared, which complete rounds alone decide.
    """

    shares: Shares
    _used: dict[QuotaLine, int]
    _inside: dict[QuotaLine, int]
    _used_by_user: dict[CapLine, int]
    _held_beside: dict[QueueName, HostUse]

    @classmethod
    def of(cls, shares: Shares) -> Self:
        """Those that begin with what is held now."""
        used, inside, by_user = dict(shares.used), dict(shares.inside), dict(shares.users.used)
        beside = dict(shares.cluster.held_beside)
        users, cluster = replace(shares.users, used=by_user), replace(shares.cluster, held_beside=beside)
        followed = replace(shares, used=used, inside=inside, users=users, cluster=cluster)
        followed = replace(followed, fair={}, inside_fair={}, common={}, inside_common={})
        return cls(followed, used, inside, by_user, beside)

    def copy(self) -> Accounts:
        """Independent ones."""
        return Accounts.of(self.shares)

    def take(self, job: Job, charge: Charge) -> None:
        """A job has started, at this cost."""
        self._add(job, charge, 1)

    def give_back(self, job: Job, charge: Charge) -> None:
        """A job has ended that was charged this."""
        self._add(job, charge, -1)

    def _add(self, job: Job, charge: Charge, times: int) -> None:
        tree, queue = self.shares.tree, job.spec.queue
        for gpu_type, milli in charge.items():
            lines = tree.lines(queue, gpu_type)
            for line in lines:
                self._used[line] = self._used.get(line, 0) + times * milli
            add_up_again(tree, lines, self.shares.guaranteed, self._used, self._inside)
            for user_line in self.shares.users.lines(job, (gpu_type,)):
                self._used_by_user[user_line] = self._used_by_user.get(user_line, 0) + times * milli
        for host_line, amount in self.shares.users.host_charges(queue, job.user, beside_wanted(job.spec)):
            self._used_by_user[host_line] = self._used_by_user.get(host_line, 0) + times * amount
        self._held_beside[queue] = self._held_beside.get(queue, HostUse()).plus(beside_wanted(job.spec), times)
