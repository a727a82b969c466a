"""What the users of a queue are due of it, where they share it fairly, and how far each is towards that.

A user's position is what it holds, and has held on average where past use counts, by its weight: GPUs of all types together, by the
weights of the types. The order of jobs goes by positions alone (queueing/user_turns). A user's fair share of a GPU type is what it
comes to have where all that the queue can have is handed out in that order, GPU by GPU: its part by weight among the users that
ask, in whole GPUs. What one does not ask for goes to the others.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple, Self

from solver.model.cluster import GpuType
from solver.model.quantities import MILLI_PER_GPU, MilliGpu, whole_gpus
from solver.model.workload import Job, QueueName
from solver.policy.tree import QuotaLine
from solver.policy.type_weights import weighed
from solver.policy.user_shares import UserShares
from solver.quota.entitlement import Shares
from solver.quota.options import Option
from solver.quota.users import UserLine

DIGITS = 6
"""To which positions are rounded, in milli-GPU: sums of the same in another order compare as equal."""


class UserDemand(NamedTuple):
    """What a user holds of a GPU type and asks for beside it, in milli-GPU; `since`: when the first of its jobs was submitted."""

    held: int
    wanted: int
    since: int = 0


@dataclass(frozen=True, slots=True)
class UserStandings:
    """What the users of one queue have of it and are due, where they share it."""

    queue: QueueName
    stated: UserShares
    shares: Shares

    @classmethod
    def of(cls, queue: QueueName, shares: Shares) -> Self | None:
        """Those of a queue; None where its users do not share it."""
        stated = shares.users.sharing.get(queue)
        return cls(queue, stated, shares) if stated is not None else None

    @property
    def origin(self) -> str:
        """Where in Git the queue stands that says so: this one, or one above it."""
        queues = (self.shares.tree.by_name[step] for step in self.shares.tree.path(self.queue))
        return next((queue.origin for queue in queues if queue.users is not None), "")

    def position(self, user: str, given: float = 0.0) -> float:
        """What the user has by its weight, in milli-GPU, with what it is `given`: those with less come first."""
        used, cluster = self.shares.users.used, self.shares.cluster
        held = {gpu_type: used.get(UserLine(self.queue, gpu_type, user), 0) for gpu_type in cluster.gpus}
        return round((weighed(held, cluster.weights) + self.past(user) + given) / self.stated.weight(user), DIGITS)

    def past(self, user: str) -> float:
        """What the user has held on average, in milli-GPU; 0 where the past does not count."""
        before, cluster = self.shares.users.before, self.shares.cluster
        lines = {gpu_type: UserLine(self.queue, gpu_type, user) for gpu_type in cluster.gpus} if before else {}
        return weighed({gpu_type: before.get(line, 0.0) for gpu_type, line in lines.items()}, cluster.weights)

    def fair_shares(self, gpu_type: GpuType, demands: Mapping[str, UserDemand]) -> tuple[MilliGpu, dict[str, MilliGpu]]:
        """What the users divide of a GPU type, and the fair share of each that holds or asks for any.

        They divide what is fair for the queue, as far as they ask for it, or what they hold, whichever is more.
        """
        line = QuotaLine(self.queue, gpu_type)
        asked = {user: whole_gpus(known.held + known.wanted) for user, known in demands.items()}
        held = whole_gpus(sum(known.held for known in demands.values()))
        there = max(held, min(self.shares.fair.get(line, 0) // MILLI_PER_GPU, sum(asked.values())))
        claims = [
            _Claim(user, asked[user], self.stated.weight(user), known.held / MILLI_PER_GPU, known.since)
            for user, known in demands.items()
        ]
        return MilliGpu.gpus(there), {user: MilliGpu.gpus(gpus) for user, gpus in _filled(there, claims).items()}


class _Claim(NamedTuple):
    """What a user asks for and holds, in GPUs."""

    user: str
    asked: int
    weight: int
    held: float
    since: int

    def turn(self, gpus: int) -> tuple[float, bool, int, str]:
        """When it gets one more than so many: who has least by weight is next, then who holds it, then the earliest job."""
        return gpus / self.weight, self.held <= gpus, self.since, self.user


def _filled(gpus: int, claims: Sequence[_Claim]) -> dict[str, int]:
    """GPU by GPU to the user that has least by its weight, as the order of jobs has it, until all have what they ask for."""
    given = _surely(gpus - len(claims), claims)
    heads = [(claim.turn(given[claim.user]), claim) for claim in claims if given[claim.user] < claim.asked]
    heapify(heads)
    for _ in range(gpus - sum(given.values())):
        if not heads:
            break
        _, claim = heads[0]
        given[claim.user] += 1
        if given[claim.user] < claim.asked:
            heapreplace(heads, (claim.turn(given[claim.user]), claim))
        else:
            heappop(heads)
    return given


def _surely(gpus: int, claims: Sequence[_Claim]) -> dict[str, int]:
    """What each has at least once one more for each of them is filled in: all up to one level by weight, as far as they ask."""
    given, left, weights = dict[str, int](), max(0, gpus), sum(claim.weight for claim in claims)
    for claim in sorted(claims, key=lambda claim: claim.asked / claim.weight):
        given[claim.user] = min(claim.asked, left * claim.weight // weights)
        left -= claim.asked if given[claim.user] == claim.asked else 0
        weights -= claim.weight if given[claim.user] == claim.asked else 0
    return given


def user_demands(
    shares: Shares, waiting: Iterable[tuple[Job, Sequence[Option]]]
) -> dict[QuotaLine, dict[str, UserDemand]]:
    """What users hold and ask for of each type in the queues that they share; a job asks for its first choice alone."""
    held, wanted, since = Counter[UserLine](), Counter[UserLine](), dict[UserLine, int]()
    for line, milli in shares.users.used.items() if shares.users.sharing else ():
        if isinstance(line, UserLine) and line.queue in shares.users.sharing:
            held[line] += milli
    for job, options in waiting:
        if job.spec.queue in shares.users.sharing:
            for gpu_type, milli in options[0].wanted.items() if options else ():
                line = UserLine(job.spec.queue, gpu_type, job.user)
                wanted[line] += milli
                since[line] = min(job.submitted_at, since.get(line, job.submitted_at))
    found: dict[QuotaLine, dict[str, UserDemand]] = defaultdict(dict)
    for line in sorted(held.keys() | wanted.keys()):
        if held[line] + wanted[line] > 0:
            of_users = found[QuotaLine(line.queue, line.gpu_type)]
            of_users[line.user] = UserDemand(held[line], wanted[line], since.get(line, 0))
    return found
