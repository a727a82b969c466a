"""Which jobs of a queue leave for others of it so that users come to their fair shares (`users.reclaim`), as turns are taken.

The running jobs of a user stand in a line: what may not be preempted first, then higher values, then the earlier start. What lies
beyond the user's fair share of every type that it holds is *beyond*. The waiting jobs of a user that still fit inside its shares,
by class, value and submission, have the *right* to them. A job that is beyond gives way to one with the right that is of its SLO
class and value, the last of the line first. So no user is taken below its share, and what has left has no right to come back
until shares have changed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from solver.model.cluster import GpuType
from solver.model.parts import owner_of
from solver.model.snapshot import Snapshot, charged
from solver.model.workload import Job, JobName, QueueName
from solver.policy.policy import SLO_CLASSES, Policy, PriorityClass
from solver.policy.precedence import Precedence, QueuePlace
from solver.policy.tree import QuotaLine
from solver.quota.entitlement import Shares, charge_of_tasks
from solver.quota.options import Option
from solver.quota.user_shares import UserDemand, UserStandings, user_demands
from solver.quota.users import UserLine

INSIDE, RIGHT = -1.0, 0.0
"""Costs of running jobs inside the share of their user, and of waiting ones with the right to theirs; what is beyond costs more."""

_NO_CLASS = PriorityClass("")

_Fair = Mapping[QuotaLine, Mapping[str, int]]


def with_user_reclaim(
    shares: Shares, snapshot: Snapshot, policy: Policy, waiting: Sequence[tuple[Job, Sequence[Option]]]
) -> Shares:
    """The shares, with what gives way for fair shares of users. `waiting`: who competes, with the ways to serve each."""
    queues = {queue for queue, stated in shares.users.sharing.items() if stated.reclaim}
    if not queues:
        return shares
    demands = user_demands(shares, waiting)
    fair = {line: _fair(line, shares, of_users) for line, of_users in demands.items() if line.queue in queues}
    places = dict(_running(snapshot, policy, queues, fair))
    rights = dict(_with_right(waiting, policy, queues, fair, shares))
    known = shares.precedence
    precedence = Precedence({**known.places, **places, **rights}, known.in_turn | rights.keys())
    return replace(shares, precedence=precedence)


def _fair(line: QuotaLine, shares: Shares, demands: Mapping[str, UserDemand]) -> Mapping[str, int]:
    standings = UserStandings.of(line.queue, shares)
    return standings.fair_shares(line.gpu_type, demands)[1] if standings is not None else {}


def _running(
    snapshot: Snapshot, policy: Policy, queues: set[QueueName], fair: _Fair
) -> Iterator[tuple[JobName, QueuePlace]]:
    lines: dict[tuple[QueueName, str], dict[JobName, tuple[Job, Counter[GpuType]]]] = defaultdict(dict)
    for job, tasks in charged(snapshot):
        if job.spec.queue in queues and job.phase != "pending" and tasks:
            line = lines[job.spec.queue, job.user]
            _, held = line.setdefault(owner_of(job.name), (job, Counter()))
            held.update(charge_of_tasks(tasks, snapshot.gpu_types))
    for (queue, user), line in lines.items():
        before = Counter[GpuType]()

        def turn(entry: tuple[Job, Counter[GpuType]]) -> tuple[bool, int, int, str]:
            known = policy.priority_class(entry[0]) or _NO_CLASS
            return known.preemptible, -known.value, entry[0].started_at or 0, owner_of(entry[0].name)

        for job, held in sorted(line.values(), key=turn):
            beyond = [before[kind] - fair.get(QuotaLine(queue, kind), {}).get(user, 0) for kind, n in held.items() if n]
            depth = min(beyond, default=-1)
            yield owner_of(job.name), _place(job, policy, 1.0 + depth if depth >= 0 else INSIDE)
            before.update(held)


def _with_right(
    waiting: Iterable[tuple[Job, Sequence[Option]]], policy: Policy, queues: set[QueueName], fair: _Fair, shares: Shares
) -> Iterator[tuple[JobName, QueuePlace]]:
    left: dict[tuple[QuotaLine, str], int] = {}
    for line, of_users in fair.items():
        for user, milli in of_users.items():
            left[line, user] = milli - shares.users.used.get(UserLine(*line, user), 0)

    def turn(known: tuple[Job, Sequence[Option]]) -> tuple[int, int, int, str]:
        place = _place(known[0], policy, RIGHT)
        return place.slo, place.below, known[0].submitted_at, known[0].name

    for job, options in sorted((known for known in waiting if known[0].spec.queue in queues), key=turn):
        for option in options:
            kinds = {kind: milli for kind, milli in option.charge.items() if milli}
            asked = {(QuotaLine(job.spec.queue, kind), job.user): milli for kind, milli in kinds.items()}
            if asked and all(milli <= left.get(part, 0) for part, milli in asked.items()):
                for part, milli in asked.items():
                    left[part] -= milli
                yield job.name, _place(job, policy, RIGHT)
                break


def _place(job: Job, policy: Policy, cost: float) -> QueuePlace:
    known = policy.priority_class(job)
    if known is None:
        return QueuePlace(len(SLO_CLASSES), 0, cost)
    return QueuePlace(SLO_CLASSES.index(known.slo_class), -known.value, cost)
