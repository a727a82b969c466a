"""What the objects of queues.quorate.dev are to say: GPUs by type and in sum, CPU and memory, jobs, and whether it starts any."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from reconciler.control.queue_use import QueueUse, queue_uses
from reconciler.model.queue_line import HostQueueLine, QueueLine
from solver.model.quantities import MilliGpu
from solver.model.snapshot import Snapshot
from solver.model.workload import QueueName
from solver.policy.policy import Policy, Queue
from solver.policy.tree import QueueTree

READY: Final = "Ready"
STALLED: Final = "Stalled"

Status = dict[str, Any]
"""JSON as the server has it."""


class QueueCondition(NamedTuple):
    """A condition without the time since when it is so, which the server has."""

    type: str
    status: str
    reason: str
    message: str


class QueueObject(NamedTuple):
    """A queue as it is to be seen. `figures`: its status but for conditions. `revision`: the policy's, in Git."""

    name: str
    revision: str
    figures: Status
    conditions: tuple[QueueCondition, ...]


class PolicyState(NamedTuple):
    """What is to be said of the policy beside what it says.

    `revision`: of the one in force. `stalled`: why a newer one is not; "" where there is none. `held`: why queues are on hold by
    hand.
    """

    revision: str
    stalled: str = ""
    held: Mapping[QueueName, str] = {}


def queues_of(snapshot: Snapshot, policy: Policy, standing: PolicyState) -> dict[str, QueueObject]:
    """All queues by name. Pure, and of a large cluster the work of a second: away from whatever answers in time."""
    tree = QueueTree.of(policy)
    return {queue.name: _object(queue, use, tree, standing) for queue, use in queue_uses(snapshot, policy)}


def _object(queue: Queue, use: QueueUse, tree: QueueTree, standing: PolicyState) -> QueueObject:
    figures: Status = {
        # Null takes either away in a merge patch.
        "parent": queue.parent,
        "host": [_host(line) for line in use.host] or None,
        "gpus": [_gpus(line) for line in use.gpus],
        "total": {
            "guaranteed": _sum(line.guaranteed for line in use.gpus),
            "used": _sum(line.held for line in use.gpus),
            "borrowed": _sum(line.borrowed for line in use.gpus),
            "pending": _sum(line.waiting for line in use.gpus),
        },
        "jobs": {"running": use.running, "pending": use.pending},
    }
    return QueueObject(queue.name, standing.revision, figures, (_ready(queue, tree, standing), _stalled(standing)))


def _gpus(line: QueueLine) -> Status:
    return {
        "gpuType": line.gpu_type,
        "guaranteed": line.guaranteed.number,
        "fairShare": line.fair_share.number,
        **({} if line.max is None else {"max": line.max.number}),
        "used": line.held.number,
        "borrowed": line.borrowed.number,
        "pending": line.waiting.number,
    }


def _host(line: HostQueueLine) -> Status:
    limits = {"lendable": line.lendable, "max": line.max, "perUser": line.per_user}
    return {
        "resource": line.resource,
        "guaranteed": line.guaranteed,
        "fairShare": line.fair_share,
        **{name: amount for name, amount in limits.items() if amount is not None},
        "used": line.held,
        "withoutGpus": line.without_gpus,
        "borrowed": line.borrowed,
        "pending": line.waiting,
    }


def _sum(parts: Iterable[MilliGpu]) -> int | float:
    return MilliGpu(sum(parts)).number


def _ready(queue: Queue, tree: QueueTree, standing: PolicyState) -> QueueCondition:
    """A hold above it holds it too."""
    why = next(_holds(tree.path(queue.name), tree, standing), None)
    if why is None:
        return QueueCondition(READY, "True", "StartsJobs", "it starts jobs as its quota and the room allow")
    reason, message = why
    return QueueCondition(READY, "False", reason, message)


def _holds(path: Iterable[QueueName], tree: QueueTree, standing: PolicyState) -> Iterator[tuple[str, str]]:
    for name in path:
        queue = tree.by_name[name]
        if queue.stop_policy != "None":
            origin = f" ({queue.origin})" if queue.origin else ""
            yield queue.stop_policy, f"queue {name} has stopPolicy {queue.stop_policy}{origin}"
        elif name in standing.held:
            yield "HeldByHand", f"queue {name} is on hold: {standing.held[name]}"


def _stalled(standing: PolicyState) -> QueueCondition:
    if standing.stalled:
        return QueueCondition(STALLED, "True", "PolicyHeld", standing.stalled)
    return QueueCondition(STALLED, "False", "PolicyInForce", "the newest policy is in force")
