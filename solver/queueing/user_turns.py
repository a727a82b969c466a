"""The order among the users of a queue that they share fairly (`users.fairShare`): the user that has least by its weight is next.

What comes before the queue's own order comes before this one, too: SLO class, rank, boosts, and age bands. Inside these each user
has its own jobs in the order of the queue, and the users take turns: next is the first job of the user that holds least, with the
jobs that have come before, by its weight. So they fill up evenly, which is their weighted max-min share (quota/user_shares). Past
use counts as in the order of queues: what a user has held on average is added to what it holds.
Which jobs may start, and which leave for others, is not asked here, and does not change.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import groupby

from solver.model.workload import Job, JobName
from solver.policy.type_weights import weighed
from solver.queueing.turns import Seniority
from solver.quota.entitlement import Shares
from solver.quota.options import Option
from solver.quota.user_shares import UserStandings


def with_users_in_turn(
    line: Sequence[Job],
    seniority: Mapping[JobName, Seniority],
    options: Mapping[JobName, tuple[Option, ...]],
    shares: Shares,
) -> Sequence[Job]:
    """The jobs of one queue, given in its own order, as its users take turns; the very same where they do not share it."""
    standings = UserStandings.of(line[0].spec.queue, shares)
    if standings is None:
        return line

    def first(job: Job) -> tuple[int, int, bool, int]:
        senior = seniority[job.name]
        return senior.slo, senior.rank, job.boosted, senior.bands_left

    turns, found = _Turns(standings, options, shares), list[Job]()
    for (*_, bands_left), group in groupby(line, key=first):
        alike = list(group)
        # In the highest age band only submission counts: no new job passes there.
        found += turns.merged(alike) if bands_left else turns.served(alike)
    return found


@dataclass(slots=True)
class _Turns:
    """What users would have once the jobs so far have started."""

    standings: UserStandings
    options: Mapping[JobName, tuple[Option, ...]]
    shares: Shares
    _given: dict[str, float] = field(default_factory=dict)

    def served(self, jobs: list[Job]) -> list[Job]:
        """Jobs that come in this order, whoever's they are."""
        for job in jobs:
            self._serve(job)
        return jobs

    def merged(self, jobs: list[Job]) -> Iterator[Job]:
        """Jobs in an order in which the user with least is next; of several the one whose job comes first in the order given."""
        lines: dict[str, deque[tuple[int, Job]]] = {}
        for place, job in enumerate(jobs):
            lines.setdefault(job.user, deque()).append((place, job))
        heads = [(self._position(user), line[0][0], user) for user, line in lines.items()]
        heapify(heads)
        while heads:
            _, _, user = heappop(heads)
            _, job = lines[user].popleft()
            self._serve(job)
            yield job
            if lines[user]:
                heappush(heads, (self._position(user), lines[user][0][0], user))

    def _position(self, user: str) -> float:
        return self.standings.position(user, self._given.get(user, 0.0))

    def _serve(self, job: Job) -> None:
        milli = weighed(self.options[job.name][0].charge, self.shares.cluster.weights)
        self._given[job.user] = self._given.get(job.user, 0.0) + milli
