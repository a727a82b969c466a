"""By what right jobs have others leave, judged one promise after the other: a plan is read so, and its order is part of it.

A job that lies inside the guarantees of its queue, or inside one that a queue above shares, takes what is borrowed. Any other
takes for its fair share. Work of a job's own queue that leaves makes room for it, and so does what left for promises before it;
not what leaves for those after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from solver.model.workload import QueueName
from solver.policy.tree import QuotaLine
from solver.quota.entitlement import Charge, QuotaHeadroom, Shares, add_up_again, inside_lines
from solver.quota.fairshare import fairer, only_above_shares
from solver.quota.vacated import Tier

Loss = tuple[QueueName, Charge]
"""What one job that leaves holds, and of which queue it is."""


class EvictionClaim(NamedTuple):
    """What a job gets, and what leaves for it, claimed in a tier. `fairly`: it may take that for its fair share, too."""

    queue: QueueName
    gain: Charge
    losses: Sequence[Loss] = ()
    tier: Tier = "entitled"
    fairly: bool = False

    @property
    def own(self) -> list[Loss]:
        """What leaves of the job's own queue."""
        return [loss for loss in self.losses if loss[0] == self.queue]

    @property
    def others(self) -> list[Loss]:
        """What leaves of other queues."""
        return [loss for loss in self.losses if loss[0] != self.queue]


@dataclass(frozen=True, slots=True)
class ClaimLedger:
    """What queues hold while promises are made in their order, and whether the next one has a right to what leaves for it.

    `shares`: their `used`, `inside` and `inside_common` are this ledger's own, and change with every promise that counts.
    """

    shares: Shares
    _used: dict[QuotaLine, int]
    _inside: dict[QuotaLine, int]
    _inside_common: dict[QuotaLine, int]

    @classmethod
    def _on(cls, shares: Shares, used: dict[QuotaLine, int]) -> Self:
        inside = dict(inside_lines(shares.tree, shares.guaranteed, used))
        common = dict(inside_lines(shares.tree, shares.common, used)) if shares.common else {}
        return cls(replace(shares, used=used, inside=inside, inside_common=common), used, inside, common)

    @classmethod
    def of(cls, headroom: QuotaHeadroom) -> Self:
        """A ledger that begins with what queues hold, and what was taken since."""
        shares, used = headroom.shares, dict(headroom.shares.used)
        for line, milli in headroom.taken.items():
            used[line] = used.get(line, 0) + milli
        return cls._on(shares, used)

    def copy(self) -> ClaimLedger:
        """Another that begins where this one stands."""
        used, inside, common = dict(self._used), dict(self._inside), dict(self._inside_common)
        return ClaimLedger(replace(self.shares, used=used, inside=inside, inside_common=common), used, inside, common)

    def count(self, claim: EvictionClaim) -> None:
        """A promise is made: what leaves for it is held no more, and what it gives is."""
        for loss in claim.losses:
            self._add(*loss, -1)
        self._add(claim.queue, claim.gain, 1)

    def take(self, queue: QueueName, charge: Charge) -> None:
        """A queue holds this as well, for which nobody leaves."""
        self._add(queue, charge, 1)

    def is_lawful(self, claim: EvictionClaim) -> bool:
        """Whether the next promise has a right to all that leaves for it: one for which no other queue gives has."""
        if not claim.others or claim.tier == "value" or self._is_inside(claim):
            return True  # By its value it is offered nothing but what may leave for it.
        return (claim.tier == "shared" and self._is_inside_common(claim)) or (claim.fairly and self._is_fair(claim))

    def in_lawful_order(self, claims: Sequence[EvictionClaim]) -> list[int] | None:
        """An order, as near to the given one as may be, in which each has a right to what it takes, beside those before it.

        They are counted in that order. None: there is none, and the ledger is of no use any more.
        """
        order, left = list[int](), list(range(len(claims)))
        while left:
            following = next((number for number in left if self.is_lawful(claims[number])), None)
            if following is None:
                return None
            left.remove(following)
            order.append(following)
            self.count(claims[following])
        return order

    def _is_inside(self, claim: EvictionClaim) -> bool:
        """Whether it lies inside the guarantees of its queue and all above it.

        Its queue's own work makes room by leaving, but where the queue holds more than its guarantee.
        """
        return self._has_room(claim, [QuotaLine(claim.queue, kind) for kind in claim.gain], self.shares.entitled_room)

    def _is_inside_common(self, claim: EvictionClaim) -> bool:
        """Whether it lies inside what queues above share with those below them, and only queues that are not below those give.

        Own work makes room as above, but where the queues below the one that shares hold more than its guarantee.
        """
        tree, sharing = self.shares.tree, list[QuotaLine]()
        for kind, milli in claim.gain.items():
            line = tree.sharing(QuotaLine(claim.queue, kind)) if milli else None
            if milli and line is None:
                return False
            sharing += [line] if line else []
        names = {line.queue for line in sharing}
        return all(names.isdisjoint(tree.path(queue)) for queue, _ in claim.others) and self._has_room(
            claim, sharing, self.shares.common_room
        )

    def _has_room(self, claim: EvictionClaim, limited: Sequence[QuotaLine], room: Callable[[QuotaLine], int]) -> bool:
        """Whether there is so much room on all lines, once the queue's own work has left: if none of the `limited` holds more."""
        guaranteed, tree = self.shares.guaranteed, self.shares.tree
        own = claim.own if all(self._used.get(line, 0) <= guaranteed.get(line, 0) for line in limited) else []
        for loss in own:
            self._add(*loss, -1)
        found = all(
            milli <= room(line) for kind, milli in claim.gain.items() if milli for line in tree.lines(claim.queue, kind)
        )
        for loss in own:
            self._add(*loss, 1)
        return found

    def _is_fair(self, claim: EvictionClaim) -> bool:
        """Whether it lies inside its queue's fair share, only queues above theirs give, and the least served have more by it."""
        fair, own = self.shares.fair, dict[QuotaLine, int]()
        for queue, charge in claim.own:
            for kind, milli in charge.items():
                own[QuotaLine(queue, kind)] = own.get(QuotaLine(queue, kind), 0) + milli
        for kind, milli in claim.gain.items():
            line = QuotaLine(claim.queue, kind)
            if milli and self._used.get(line, 0) - own.get(line, 0) + milli > fair.get(line, 0):
                return False
        held, others = QuotaHeadroom(self.shares), claim.others
        return only_above_shares(held, claim.queue, others) and fairer(held, claim.queue, claim.gain, others)

    def _add(self, queue: QueueName, charge: Charge, sign: int) -> None:
        tree = self.shares.tree
        for kind, milli in charge.items():
            lines = tree.lines(queue, kind) if milli else ()
            for line in lines:
                self._used[line] = self._used.get(line, 0) + sign * milli
            add_up_again(tree, lines, self.shares.guaranteed, self._used, self._inside)
            if self.shares.common:
                add_up_again(tree, lines, self.shares.common, self._used, self._inside_common)
