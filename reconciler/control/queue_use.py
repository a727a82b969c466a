"""What every queue is guaranteed, holds, borrows and waits for, with the queues below it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from threading import Lock
from typing import Final, NamedTuple

from reconciler.model.near_names import NearNames
from reconciler.model.queue_line import HostQueueLine, HoursInForce, QueueLine, QueueUser, amount_text
from solver.capacity.sharing import sharing_of
from solver.model.cluster import GpuType
from solver.model.quantities import MilliGpu
from solver.model.round_cache import RoundCache
from solver.model.snapshot import Snapshot
from solver.model.workload import Job, JobName, QueueName
from solver.policy.policy import Policy, Queue
from solver.policy.tree import QueueTree, QuotaLine
from solver.policy.type_weights import weights_of
from solver.policy.windows import policy_at
from solver.quota.entitlement import Shares
from solver.quota.host_division import host_use_by_line
from solver.quota.options import options_of
from solver.quota.user_shares import UserStandings, user_demands
from solver.quota.users import HostLine
from solver.round.admission import Admission
from solver.round.solve import competing, standing


class QueueUse(NamedTuple):
    """Jobs and GPUs of a queue, with those of the queues below it; a line for each GPU type of the cluster, sorted.

    `users`: those that share the queue fairly and hold or wait for GPUs, by name and type. `slips`: names that have a weight and of
    which nothing is known, each with the one of these users that it may be meant for. `host`: its CPU and memory, where some queue
    says anything of either. `hours`: which hours of its quota are open, and when that changes; None: it has none.
    """

    running: int
    pending: int
    gpus: tuple[QueueLine, ...]
    users: tuple[QueueUser, ...] = ()
    slips: tuple[tuple[str, str], ...] = ()
    host: tuple[HostQueueLine, ...] = ()
    hours: HoursInForce | None = None


AWAITED_S: Final = 2.0
"""So long it is waited for what is worked out beside a round: after that it is worked out here."""

QueueUses = Future[tuple[QueueUse, ...] | None]
"""What the queues of a policy hold and want, in its order, as soon as it is worked out; None: it could not be."""


class LatestQueueUses:
    """What the latest snapshot says of queues, worked out once, however many ask. Threads may share it."""

    def __init__(self) -> None:
        self._working = Lock()
        self._kept = RoundCache()
        self._latest: tuple[Snapshot, Policy, tuple[tuple[Queue, QueueUse], ...]] | None = None

    def of(
        self, snapshot: Snapshot, policy: Policy, awaited: QueueUses | None = None
    ) -> tuple[tuple[Queue, QueueUse], ...]:
        """Of every queue of the policy, in its order.

        `awaited`: of these two, from where the round was decided. Until it is there, what was said before holds.
        """
        with self._working:
            latest = self._latest
            is_awaited = awaited is not None and not awaited.done()
            if latest is not None and latest[1] is policy and (latest[0] is snapshot or is_awaited):
                return latest[2]
            told = _told_of(awaited) if awaited is not None else None
            if told is not None:
                found = tuple(zip(policy_at(policy, snapshot.time).queues, told, strict=True))
            else:
                found = tuple(queue_uses(snapshot, policy, self._kept))
            self._latest = snapshot, policy, found
            return found


def _told_of(awaited: QueueUses) -> tuple[QueueUse, ...] | None:
    try:
        return awaited.result(AWAITED_S)
    except TimeoutError:
        return None


def queue_uses(snapshot: Snapshot, policy: Policy, kept: RoundCache | None = None) -> Iterator[tuple[Queue, QueueUse]]:
    """Of every queue of the policy, as it stands by then, in its order. `kept`: what was worked out for snapshots before."""
    policy = policy_at(policy, snapshot.time)
    tree = QueueTree.of(policy)
    shares, admissions = standing(snapshot, policy, kept)
    users = _users(snapshot, shares, admissions)
    gpu_types = tuple(sorted({node.gpu_type for node in snapshot.nodes if node.gpus}))
    waiting = _waiting(snapshot, tree, gpu_types, policy)
    past = _past_use(snapshot, tree) if policy.scheduling.usage_half_life else {}

    def line(queue: Queue, gpu_type: GpuType) -> QueueLine:
        at = QuotaLine(queue.name, gpu_type)
        guaranteed, held = MilliGpu(shares.guaranteed.get(at, 0)), MilliGpu(shares.used.get(at, 0))
        queue_max, entry = shares.max.get(at), queue.quota_for(gpu_type)
        return QueueLine(
            gpu_type,
            guaranteed,
            None if queue_max is None else MilliGpu(queue_max),
            fair_share=MilliGpu(shares.fair.get(at, 0)),
            held=held,
            borrowed=MilliGpu(max(0, held - guaranteed)),
            waiting=MilliGpu(waiting.get(at, 0)),
            past_gpu_hours=round(past.get(at, 0.0), 3),
            lendable=entry.lendable if entry else None,
        )

    named = _users_known(snapshot) if users else frozenset[str]()
    host = _host_lines(snapshot, shares)
    jobs = Counter((queue, job.phase == "pending") for job in snapshot.jobs for queue in tree.path(job.spec.queue))
    for queue in policy.queues:
        gpus = tuple(line(queue, gpu_type) for gpu_type in gpu_types)
        of_users = users.get(queue.name, ())
        lines = of_users, _slips(queue.name, of_users, named, shares), host.get(queue.name, ()), _hours_of(queue)
        yield queue, QueueUse(jobs[queue.name, False], jobs[queue.name, True], gpus, *lines)


def _users(
    snapshot: Snapshot, shares: Shares, admissions: dict[JobName, Admission]
) -> dict[QueueName, tuple[QueueUser, ...]]:
    """Of each queue that users share, those that hold or wait for GPUs."""
    promised = {intent.job for intent in snapshot.in_flight.nominations}
    waiting = competing(snapshot, admissions, promised) if shares.users.sharing else ()
    past = {(used.queue, used.gpu_type, used.user): used.gpu_hours for used in snapshot.in_flight.usage}
    found: dict[QueueName, list[QueueUser]] = {}
    for line, demands in user_demands(shares, waiting).items():
        standings = UserStandings.of(line.queue, shares)
        if standings is not None and line.gpu_type:
            _, fair = standings.fair_shares(line.gpu_type, demands)
            found.setdefault(line.queue, []).extend(
                QueueUser(
                    user,
                    line.gpu_type,
                    standings.stated.weight(user),
                    fair_share=fair[user],
                    held=MilliGpu(known.held),
                    waiting=MilliGpu(known.wanted),
                    past_gpu_hours=round(past.get((*line, user), 0.0), 3),
                )
                for user, known in demands.items()
            )
    return {queue: tuple(sorted(users, key=lambda one: (one.user, one.gpu_type))) for queue, users in found.items()}


def _users_known(snapshot: Snapshot) -> frozenset[str]:
    """Those of whom there is a job, or past use."""
    past = (used.user for used in snapshot.in_flight.usage if used.user is not None)
    return frozenset([*past, *(job.user for job in snapshot.jobs)])


def _slips(
    queue: QueueName, users: tuple[QueueUser, ...], named: frozenset[str], shares: Shares
) -> tuple[tuple[str, str], ...]:
    """Names that have a weight, while one of the users has a name like it and none. `named`: all that anything is known of."""
    standings = UserStandings.of(queue, shares) if users else None
    unknown = standings.stated.weights.keys() - named if standings is not None else ()
    if standings is None or not unknown:
        return ()
    without = NearNames({one.user for one in users} - {""} - standings.stated.weights.keys())
    found = ((name, without.nearest(name)) for name in sorted(unknown))
    return tuple((name, meant) for name, meant in found if meant is not None)


def _host_lines(snapshot: Snapshot, shares: Shares) -> dict[QueueName, tuple[HostQueueLine, ...]]:
    """CPU and memory of each queue, as far as any queue says anything of it."""
    tree, dues, held = shares.tree, shares.host, host_use_by_line(snapshot, shares.tree)

    def line(at: HostLine) -> HostQueueLine:
        def told(amount: int) -> str:
            return amount_text(at.resource, int(amount))

        alone, guaranteed = dues.used.get(at, 0), dues.guarantees.guaranteed.get(at, 0)
        queue_max, entry = shares.users.host_max.get(at), tree.by_name[at.queue].host_quota_for(at.resource)
        return HostQueueLine(
            resource=at.resource,
            guaranteed=told(guaranteed),
            max=None if queue_max is None else told(queue_max),
            fair_share=told(dues.fair.get(at, 0)),
            held=told(held[at]),
            without_gpus=told(alone),
            borrowed=told(max(0, alone - guaranteed)),
            waiting=told(dues.wanted.get(at, 0)),
            lendable=None if entry is None or entry.lendable is None else told(entry.lendable),
            per_user=None if entry is None or entry.per_user is None else told(entry.per_user),
            shared=entry is not None and entry.shared,
        )

    resources = tree.host_resources
    return {name: tuple(line(HostLine(name, resource)) for resource in resources) for name in tree.by_name}


def _hours_of(queue: Queue) -> HoursInForce | None:
    """Of a queue of a policy that stands at an instant."""
    if not queue.in_hours and not queue.ahead:
        return None
    after = queue.ahead[0] if queue.ahead else None
    return HoursInForce(queue.in_hours, after.at if after else None, after.hours if after else ())


def _past_use(snapshot: Snapshot, tree: QueueTree) -> dict[QuotaLine, float]:
    """GPU-hours, of each queue with those below it."""
    past: dict[QuotaLine, float] = {}
    for used in snapshot.in_flight.usage:
        for line in tree.lines(used.queue, used.gpu_type):
            past[line] = past.get(line, 0.0) + used.gpu_hours
    return past


def _waiting(
    snapshot: Snapshot, tree: QueueTree, gpu_types: tuple[GpuType, ...], policy: Policy
) -> dict[QuotaLine, int]:
    wanted: dict[QuotaLine, int] = {}
    for line, milli in _wishes(snapshot, tree, gpu_types, policy):
        wanted[line] = wanted.get(line, 0) + milli
    return wanted


def _wishes(
    snapshot: Snapshot, tree: QueueTree, gpu_types: tuple[GpuType, ...], policy: Policy
) -> Iterator[tuple[QuotaLine, int]]:
    """What each pending job would be charged under its first choice, on every queue of its path."""
    sharing, weights = sharing_of(policy, tree, snapshot.nodes), weights_of(policy.scheduling.gpu_types)
    alike: dict[tuple[object, ...], list[Job]] = {}
    for job in snapshot.pending:
        alike.setdefault((job.spec.queue, job.spec.task_groups), []).append(job)
    for jobs in alike.values():
        spec = jobs[0].spec
        for option in options_of(spec, gpu_types, sharing, weights=weights)[:1]:
            for gpu_type, milli in option.wanted.items():
                yield from ((QuotaLine(queue, gpu_type), milli * len(jobs)) for queue in tree.path(spec.queue))
