"""Why jobs of one user wait behind those of others: what each user of a queue holds and asks for, beside its fair share of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from solver.model.quantities import MilliGpu
from solver.plan.reasons import UserShare
from solver.policy.tree import QuotaLine
from solver.queueing.demand import StartCandidate
from solver.quota.entitlement import Shares
from solver.quota.user_shares import UserDemand, UserStandings, user_demands
from solver.quota.users import CapLine, UserLine, UserRoom


@dataclass(slots=True)
class UserReasons:
    """Of all that wait in queues that users share, once a round has given out what there was. `shares`: with what it has given."""

    shares: Shares
    demands: Mapping[QuotaLine, Mapping[str, UserDemand]]
    _known: dict[QuotaLine, dict[str, UserShare]] = field(default_factory=dict)

    @classmethod
    def after(cls, shares: Shares, users: UserRoom, waiting: Iterable[StartCandidate]) -> Self:
        """`waiting`: jobs that get nothing in the round; those of other queues do not matter."""
        sharing, used = shares.users.sharing, Counter[CapLine]()
        for known in (users.caps.used, users.taken) if sharing else ():
            lines = ((line, milli) for line, milli in known.items() if isinstance(line, UserLine))
            used.update({line: milli for line, milli in lines if line.queue in sharing})
        held = replace(shares, users=replace(shares.users, used=used)) if sharing else shares
        return cls(held, user_demands(held, ((known.job, known.options) for known in waiting)))

    def of(self, candidate: StartCandidate) -> Iterator[UserShare]:
        """For each type that the job asks for: its user has its share of it or more, or has had more than others that ask."""
        queue = candidate.job.spec.queue
        if queue in self.shares.users.sharing:
            for gpu_type in sorted({kind for option in candidate.options for kind in option.charge}):
                reason = self._of_users(QuotaLine(queue, gpu_type)).get(candidate.job.user)
                if reason is not None:
                    yield reason

    def _of_users(self, line: QuotaLine) -> dict[str, UserShare]:
        if line not in self._known:
            self._known[line] = {reason.user: reason for reason in self._found(line)}
        return self._known[line]

    def _found(self, line: QuotaLine) -> Iterator[UserShare]:
        standings = UserStandings.of(line.queue, self.shares)
        if standings is None:
            return
        demands = self.demands.get(line, {})
        there, fair = standings.fair_shares(line.gpu_type, demands)
        positions = {user: standings.position(user) for user in fair if demands[user].wanted}
        for user, position in positions.items() if len(fair) > 1 else ():
            held, past, share = demands[user].held, standings.past(user), fair[user]
            is_behind = past > 0 and min(positions.values()) < position
            if held >= share or is_behind:
                before = MilliGpu(round(past)) if held < share else None
                of = line.queue, line.gpu_type, user
                yield UserShare(*of, MilliGpu(held), there, share, len(fair), before, standings.origin)
