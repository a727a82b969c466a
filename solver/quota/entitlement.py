"""What each queue is guaranteed, what it may hold at most, and how much of both is left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from solver.model.cluster import GpuType, NodeName
from solver.model.quantities import Duration
from solver.model.round_cache import RoundCache
from solver.model.snapshot import Snapshot
from solver.model.workload import Job, QueueName, TaskPlacement
from solver.policy.precedence import Precedence
from solver.policy.tree import QueueTree, QuotaLine
from solver.policy.type_weights import TypeWeights
from solver.quota.dominance import ClusterTotals
from solver.quota.guarantees import common_limits, guarantees
from solver.quota.held_use import NEVER, HeldByLines, HeldUse
from solver.quota.host_dues import HostDues
from solver.quota.lending import Lending, Weights, kept_back, lending_of
from solver.quota.usage import gpus_of_users, gpus_on_average
from solver.quota.users import UserCaps, UserLine, user_caps_of
from solver.quota.users import under_tree as users_under_tree

Charge = Mapping[GpuType, int]
"""Milli-GPU by type: what a gang costs its queue."""


class ServedOrder(NamedTuple):
    """Which of two queues comes first where nothing else tells: the one served longest ago, then that of the earliest job."""

    last_start: int = 0
    first_submission: int = 0


@dataclass(frozen=True, slots=True)
class Shares:
    """Guarantees, max, use and fair shares of every queue, per GPU type, in milli-GPU.

    `max` holds only lines that have one. `users`: what each single user may hold. `inside`: the part of the use that lies inside
    the guarantees of every queue from the user's up to this one; the rest is borrowed and stands in nobody's way. `common`: what
    may be claimed of guarantees that queues share with those below them, and `inside_common` what is held inside that; empty where
    none is shared. `cluster`: what dominant shares are shares of. `fair` depends on demand and is added once that is known
    (quota/fairshare), with `inside_fair`, the part of the use inside fair shares. `precedence`: who comes first in queues that go
    by cost. `lending`: what is kept back for its owners. `served`: who gets what can't be divided. `host`: what jobs without GPUs
    are due of CPU and memory, once it is known who waits.
    """

    tree: QueueTree
    guaranteed: Mapping[QuotaLine, int]
    max: Mapping[QuotaLine, int]
    used: Mapping[QuotaLine, int]
    users: UserCaps
    inside: Mapping[QuotaLine, int]
    cluster: ClusterTotals = field(default_factory=ClusterTotals)
    fair: Mapping[QuotaLine, int] = field(default_factory=dict)
    inside_fair: Mapping[QuotaLine, int] = field(default_factory=dict)
    precedence: Precedence = field(default_factory=Precedence)
    lending: Lending = field(default_factory=Lending)
    served: Mapping[QueueName, ServedOrder] = field(default_factory=dict)
    common: Mapping[QuotaLine, int] = field(default_factory=dict)
    inside_common: Mapping[QuotaLine, int] = field(default_factory=dict)
    host: HostDues = field(default_factory=HostDues)

    def holding(self, used: Mapping[QuotaLine, int]) -> Shares:
        """The same shares under another use."""
        inside = inside_lines(self.tree, self.guaranteed, used)
        inside_fair = inside_lines(self.tree, self.fair, used) if self.fair else {}
        inside_common = inside_lines(self.tree, self.common, used) if self.common else {}
        return replace(self, used=used, inside=inside, inside_fair=inside_fair, inside_common=inside_common)

    def with_fair(self, fair: Mapping[QuotaLine, int]) -> Shares:
        """The same shares once it is known what is fair."""
        return replace(self, fair=fair, inside_fair=inside_lines(self.tree, fair, self.used))

    def without(self, gone: Iterable[tuple[QueueName, Charge]]) -> Shares:
        """The same shares once these holders have left."""
        used, inside, inside_fair = dict(self.used), dict(self.inside), dict(self.inside_fair)
        inside_common = dict(self.inside_common)
        for queue, charge in gone:
            for gpu_type, milli in charge.items():
                lines = self.tree.lines(queue, gpu_type)
                for line in lines:
                    used[line] = used.get(line, 0) - milli
                add_up_again(self.tree, lines, self.guaranteed, used, inside)
                if self.fair:
                    add_up_again(self.tree, lines, self.fair, used, inside_fair)
                if self.common:
                    add_up_again(self.tree, lines, self.common, used, inside_common)
        return replace(self, used=used, inside=inside, inside_fair=inside_fair, inside_common=inside_common)

    def beside(self, more: Iterable[tuple[QueueName, Charge]]) -> Shares:
        """The same shares once this is held as well."""
        negative = ((queue, {gpu_type: -milli for gpu_type, milli in charge.items()}) for queue, charge in more)
        return self.without(negative)

    def fair_room(self, line: QuotaLine) -> int:
        """Milli-GPU that new work may still take inside the fair share of this one queue.

        What a queue below it holds above its own fair share stands in nobody's way: it can be taken back.
        """
        return max(0, self.fair.get(line, 0) - self.inside_fair.get(line, 0))

    def entitled_room(self, line: QuotaLine) -> int:
        """Milli-GPU that new work may still take inside the guarantee of this one queue."""
        return max(0, self.guaranteed.get(line, 0) - self.inside.get(line, 0))

    def common_room(self, line: QuotaLine) -> int:
        """Milli-GPU that new work may still claim of what queues share with those below them, as far as this one queue goes."""
        return max(0, self.common.get(line, 0) - self.inside_common.get(line, 0))

    def left_under_max(self, line: QuotaLine) -> int | None:
        """Milli-GPU that new work may still take under the max of this one queue; None: it has none."""
        queue_max = self.max.get(line)
        return None if queue_max is None else max(0, queue_max - self.used.get(line, 0))


def shares_of(snapshot: Snapshot, tree: QueueTree, kept: RoundCache | None = None) -> Shares:
    """Work out the shares of every queue under a snapshot. `kept`: what was known in the rounds before."""
    use = HeldUse.kept(kept)
    there, held = use.of_nodes(snapshot.nodes), use.of_jobs(snapshot)
    guaranteed, used = guarantees(tree, there.gpus), use_of_lines(tree, held)
    common = common_limits(tree, guaranteed)
    return Shares(
        tree,
        guaranteed,
        queue_limits_of(tree),
        used,
        user_caps_of(snapshot, tree),
        inside_lines(tree, guaranteed, used),
        ClusterTotals(there.gpus, there.beside, held.beside),
        lending=lending_of(snapshot, tree, guaranteed),
        served=_served_order_of(snapshot, tree, held.last_start),
        common=common,
        inside_common=inside_lines(tree, common, used) if common else {},
    )


def under_tree(shares: Shares, tree: QueueTree, held: Iterable[tuple[Job, Charge]], live: Charge) -> Shares:
    """The shares of a tree with another quota, beside the same use. `held`: by which jobs; `live`: what can be divided now."""
    guaranteed = guarantees(tree, shares.cluster.gpus)
    kept, common = kept_back(tree, guaranteed), common_limits(tree, guaranteed)
    changed = replace(
        shares,
        tree=tree,
        guaranteed=guaranteed,
        max=queue_limits_of(tree),
        users=users_under_tree(shares.users, tree, held),
        lending=Lending(kept, (shares.lending.capacity or live) if kept else {}),
        fair={},
        common=common,
    )
    return changed.holding(shares.used)


def queue_limits_of(tree: QueueTree) -> dict[QuotaLine, int]:
    """What each line that has a `max` may hold, in milli-GPU."""
    return {
        QuotaLine(queue.name, entry.gpu_type): entry.max
        for queue in tree.by_name.values()
        for entry in queue.quota
        if entry.max is not None
    }


def _served_order_of(
    snapshot: Snapshot, tree: QueueTree, started: Mapping[QueueName, int]
) -> dict[QueueName, ServedOrder]:
    """When each queue had a job started last, and submitted first of those that wait; those below it count as its own.

    `started`: the former, without those below.
    """
    submitted = dict[QueueName, int]()
    for job in snapshot.pending:
        queue = job.spec.queue
        submitted[queue] = min(job.submitted_at, submitted.get(queue, job.submitted_at))
    last, first = dict[QueueName, int](), dict[QueueName, int]()
    for queue in {*started, *submitted}:
        for step in tree.path(queue):
            if queue in started:
                last[step] = max(started[queue], last.get(step, started[queue]))
            if queue in submitted:
                first[step] = min(submitted[queue], first.get(step, submitted[queue]))
    return {queue: ServedOrder(last.get(queue, NEVER), first.get(queue, 0)) for queue in {*last, *first}}


def with_past_use(shares: Shares, snapshot: Snapshot, half_life: Duration | None) -> Shares:
    """The shares, with what queues and their users have held on average; without a half-life the past does not count."""
    past, users = snapshot.in_flight.usage, shares.users
    before = gpus_on_average(past, half_life) if half_life else {}
    if half_life and users.sharing:
        of_users = gpus_of_users(past, half_life)
        users = replace(users, before={UserLine(*line): milli for line, milli in of_users.items()})
    return replace(shares, cluster=replace(shares.cluster, held_before=before), users=users)


def with_type_weights(shares: Shares, weights: TypeWeights) -> Shares:
    """The shares, where GPUs of several types are added up by weight."""
    return replace(shares, cluster=replace(shares.cluster, weights=weights))


def gpus_by_type(snapshot: Snapshot) -> Mapping[GpuType, int]:
    """Declared milli-GPU per type. Broken ones count: a guarantee does not shrink while a node is repaired."""
    return HeldUse().of_nodes(snapshot.nodes).gpus


def use_by_line(snapshot: Snapshot, tree: QueueTree) -> dict[QuotaLine, int]:
    """Milli-GPU held, by every queue on the holder's path. A job is charged to the type it uses."""
    return use_of_lines(tree, HeldUse().of_jobs(snapshot))


def use_of_lines(tree: QueueTree, held: HeldByLines) -> dict[QuotaLine, int]:
    """The same, of what jobs of each queue itself hold."""
    used: dict[QuotaLine, int] = {}
    for (queue, gpu_type), milli in held.gpus.items():
        for line in tree.lines(queue, gpu_type):
            used[line] = used.get(line, 0) + milli
    return used


def inside_lines(
    tree: QueueTree, limits: Mapping[QuotaLine, int], used: Mapping[QuotaLine, int]
) -> Mapping[QuotaLine, int]:
    """What of every line's use is inside the limits (guarantees, or fair shares) of all queues from the user's up to it."""
    inside: dict[QuotaLine, int] = {}
    for gpu_type in {line.gpu_type for line in used}:
        for line, lines_below in tree.upwards(gpu_type):
            below = sum([inside[child] for child in lines_below]) if lines_below else used.get(line, 0)
            inside[line] = min(limits.get(line, 0), below)
    return inside


def add_up_again(
    tree: QueueTree,
    path: Sequence[QuotaLine],
    limits: Mapping[QuotaLine, int],
    used: Mapping[QuotaLine, int],
    inside: dict[QuotaLine, int],
) -> None:
    """Bring `inside` up to date once the use of the queue at the beginning of a path, from the queue up, has changed."""
    for line in path:
        lines_below = tree.lines_below(line)
        below = sum(inside.get(child, 0) for child in lines_below) if lines_below else used.get(line, 0)
        now = min(limits.get(line, 0), below)
        if inside.get(line) == now:
            return
        inside[line] = now


def charge_of_tasks(tasks: Iterable[TaskPlacement], gpu_types: Mapping[NodeName, GpuType]) -> dict[GpuType, int]:
    """What placed tasks cost their queue, 0 where they have only CPU on nodes of a type; lost nodes are of no type."""
    charge: dict[GpuType, int] = {}
    for task in tasks:
        gpu_type = gpu_types.get(task.node, GpuType(""))
        charge[gpu_type] = charge.get(gpu_type, 0) + task.gpus
    return charge


@dataclass(slots=True)
class Inside:
    """What is left inside nested lines (guarantees, or fair shares) while a round hands out GPUs."""

    tree: QueueTree
    room: Callable[[QuotaLine], int]
    taken: dict[QuotaLine, int] = field(default_factory=dict)
    _left: dict[QuotaLine, int] = field(default_factory=dict)
    """Of the lines that were asked for."""

    def part(self, queue: QueueName, charge: Charge) -> int:
        """How much of the charge lies inside the lines of the whole path."""
        return sum([self._part(self.tree.lines(queue, gpu_type), milli) for gpu_type, milli in charge.items()])

    def holds(self, queue: QueueName, charge: Charge) -> bool:
        """Whether the charge lies inside to the last GPU."""
        return self.part(queue, charge) == sum(charge.values())

    def take(self, queue: QueueName, charge: Charge) -> int:
        """Charge a start; returns the part of it that lies inside."""
        return sum([self.take_of(queue, gpu_type, milli) for gpu_type, milli in charge.items()])

    def take_of(self, queue: QueueName, gpu_type: GpuType, milli: int) -> int:
        """Charge GPUs of one type; returns the part of them that lies inside."""
        lines = self.tree.lines(queue, gpu_type)
        part = self._part(lines, milli)
        for line in lines if part else ():
            self.taken[line] = self.taken.get(line, 0) + part
            self._left[line] -= part
        return part

    def left(self, line: QuotaLine) -> int:
        """What is left of one line."""
        left = self._left.get(line)
        if left is None:
            left = self._left[line] = max(0, self.room(line) - self.taken.get(line, 0))
        return left

    def _part(self, lines: Sequence[QuotaLine], milli: int) -> int:
        return min(milli, *[self.left(line) for line in lines]) if lines else 0


@dataclass(slots=True)
class QuotaHeadroom:
    """What is left under every max, inside every guarantee and inside every fair share while a round hands out GPUs.

    `weights`: what queues keep back from each other. `starts`: how many were charged: what is known of it holds until the next.
    """

    shares: Shares
    taken: dict[QuotaLine, int] = field(default_factory=dict)
    entitled: Inside = field(init=False)
    fair: Inside = field(init=False)
    common: Inside = field(init=False)
    weights: Weights = field(init=False)
    starts: int = 0

    def __post_init__(self) -> None:
        self.entitled = Inside(self.shares.tree, self.shares.entitled_room)
        self.fair = Inside(self.shares.tree, self.shares.fair_room)
        self.common = Inside(self.shares.tree, self.shares.common_room)
        self.weights = Weights.of(self.shares.tree, self.shares.lending, self.shares.used, self.taken)

    def under(self, shares: Shares) -> QuotaHeadroom:
        """The same starts counted against other shares: what would be left once somebody has gone."""
        entitled = Inside(shares.tree, shares.entitled_room, dict(self.entitled.taken))
        fair = Inside(shares.tree, shares.fair_room, dict(self.fair.taken))
        other = QuotaHeadroom(shares, dict(self.taken))
        other.entitled, other.fair = entitled, fair
        other.common = Inside(shares.tree, shares.common_room, dict(self.common.taken))
        return other

    def blocking(self, queue: QueueName, charge: Charge) -> tuple[QuotaLine, ...]:
        """The lines on the queue's path whose max the charge would break, from the queue up."""
        return tuple(
            line
            for gpu_type, milli in sorted(charge.items())
            for line in self.shares.tree.lines(queue, gpu_type)
            if (room := self.shares.left_under_max(line)) is not None and milli > room - self.taken.get(line, 0)
        )

    def allows(self, queue: QueueName, charge: Charge) -> bool:
        """Whether neither a max nor what is kept back for others forbids the charge."""
        return not self.blocking(queue, charge) and not self.weights.refused(queue, charge)

    def take(self, queue: QueueName, charge: Charge) -> int:
        """Charge a start; returns its entitled part."""
        self.starts += 1
        for gpu_type, milli in charge.items():
            for line in self.shares.tree.lines(queue, gpu_type):
                self.taken[line] = self.taken.get(line, 0) + milli
        self.fair.take(queue, charge)
        if self.shares.common:
            self.common.take(queue, charge)
        self.weights.take(queue, charge)
        return self.entitled.take(queue, charge)
