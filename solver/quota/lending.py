"""What queues do not lend: GPUs inside a guarantee that are kept free for its owner while it does not use them.

A queue keeps back what `lendable` leaves of its guarantee. It *weighs* as much as it and the queues below it use, each of these
at least what it keeps back, and itself no less than what it keeps back. A start is let in where all roots together then weigh no
more than there is of the type, or no more than before: what a queue keeps back is always open to its own jobs, and where too
much is lent already, nobody lends more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from solver.model.cluster import GpuType
from solver.model.round_cache import RoundCache
from solver.model.snapshot import Snapshot, charged
from solver.model.workload import QueueName
from solver.policy.tree import QueueTree, QuotaLine
from solver.quota.held_use import HeldUse


@dataclass(frozen=True, slots=True)
class Lending:
    """Milli-GPU that lines keep back, those that keep back any; `capacity`: what there is of a type, and may weigh something."""

    kept: Mapping[QuotaLine, int] = field(default_factory=dict)
    capacity: Mapping[GpuType, int] = field(default_factory=dict)

    @property
    def gpu_types(self) -> list[GpuType]:
        """The types of which anything is kept back."""
        return sorted({line.gpu_type for line in self.kept})


def lending_of(snapshot: Snapshot, tree: QueueTree, guaranteed: Mapping[QuotaLine, int]) -> Lending:
    """What the queues of a policy keep back of what they are guaranteed."""
    kept = kept_back(tree, guaranteed)
    return Lending(kept, _there(snapshot) if kept else {})


def kept_back(tree: QueueTree, guaranteed: Mapping[QuotaLine, int]) -> dict[QuotaLine, int]:
    """Milli-GPU of every line that keeps back any."""
    stated = {
        QuotaLine(queue.name, entry.gpu_type): entry.lendable
        for queue in tree.by_name.values()
        for entry in queue.quota
        if entry.lendable is not None
    }
    return {line: back for line, lendable in sorted(stated.items()) if (back := guaranteed.get(line, 0) - lendable) > 0}


def live_gpus(snapshot: Snapshot, kept: RoundCache | None = None) -> dict[GpuType, int]:
    """Milli-GPU that can be divided now: the healthy ones of nodes that are there, cordoned or not."""
    return dict(HeldUse.kept(kept).of_nodes(snapshot.nodes).live)


def _there(snapshot: Snapshot) -> dict[GpuType, int]:
    """What is live, and what jobs still hold of the rest: a lost node takes its use along with its GPUs."""
    there, types = Counter(live_gpus(snapshot)), snapshot.gpu_types
    live = {gpu.id for node in snapshot.nodes if node.ready for gpu in node.gpus if gpu.healthy}
    for _, tasks in charged(snapshot):
        for task in tasks:
            if task.node in types and not live.issuperset(task.on_gpus):
                there[types[task.node]] += task.gpus
    return dict(there)


@dataclass(slots=True)
class Weights:
    """What queues weigh while a round hands out GPUs. `below`: by line what is used, and kept back further down."""

    tree: QueueTree
    lending: Lending
    below: dict[QuotaLine, int] = field(default_factory=dict)
    total: dict[GpuType, int] = field(default_factory=dict)

    @classmethod
    def of(cls, tree: QueueTree, lending: Lending, *uses: Mapping[QuotaLine, int]) -> Weights:
        """What they weigh under all these uses together."""
        weights = cls(tree, lending)
        for gpu_type in lending.gpu_types:
            roots = tree.children.get(None, ())
            weights.total[gpu_type] = sum(weights._add_up(QuotaLine(root.name, gpu_type), uses) for root in roots)
        return weights

    def _add_up(self, line: QuotaLine, uses: Sequence[Mapping[QuotaLine, int]]) -> int:
        children = [QuotaLine(child.name, line.gpu_type) for child in self.tree.children.get(line.queue, ())]
        # What a queue uses that is none of its children's: jobs from before it had any.
        own = sum(used.get(line, 0) - sum(used.get(child, 0) for child in children) for used in uses)
        self.below[line] = own + sum(self._add_up(child, uses) for child in children)
        return max(self.below[line], self.lending.kept.get(line, 0))

    def unused(self, line: QuotaLine) -> int:
        """Milli-GPU that a line keeps back now."""
        return max(0, self.lending.kept.get(line, 0) - self.below.get(line, 0))

    @property
    def exceeded(self) -> set[GpuType]:
        """The types of which more is taken than is lent: since `lendable` was lowered, or nodes were lost."""
        return {gpu_type for gpu_type, milli in self.total.items() if milli > self.lending.capacity.get(gpu_type, 0)}

    def room(self, queue: QueueName, gpu_type: GpuType) -> int | None:
        """Milli-GPU that the queue may still take: of what is lent, and what is kept back for it; None: nothing is kept back."""
        if gpu_type not in self.total:
            return None
        lent = max(0, self.lending.capacity.get(gpu_type, 0) - self.total[gpu_type])
        return lent + self.own(queue, gpu_type)

    def own(self, queue: QueueName, gpu_type: GpuType) -> int:
        """Milli-GPU that is kept back for a queue now."""
        return sum(self.unused(line) for line in self.tree.lines(queue, gpu_type))

    def refused(self, queue: QueueName, charge: Mapping[GpuType, int]) -> list[GpuType]:
        """The types of which a charge would take what is kept back for others."""
        if not self.total:
            return []
        rooms = ((gpu_type, milli, self.room(queue, gpu_type)) for gpu_type, milli in sorted(charge.items()))
        return [gpu_type for gpu_type, milli, room in rooms if room is not None and milli > room]

    def keepers(self, queue: QueueName, gpu_type: GpuType) -> Iterator[tuple[QuotaLine, int]]:
        """The lines of other queues that keep something back now, and how much."""
        mine = set(self.tree.path(queue))
        for line in self.lending.kept:
            if line.gpu_type == gpu_type and line.queue not in mine and (unused := self.unused(line)):
                yield line, unused

    def take(self, queue: QueueName, charge: Mapping[GpuType, int]) -> None:
        """Charge a start."""
        for gpu_type, milli in charge.items():
            if gpu_type in self.total:
                self._raise(queue, gpu_type, milli)

    def _raise(self, queue: QueueName, gpu_type: GpuType, milli: int) -> None:
        for line in self.tree.lines(queue, gpu_type):
            from_kept = min(milli, self.unused(line))
            self.below[line] = self.below.get(line, 0) + milli
            milli -= from_kept
        self.total[gpu_type] += milli
