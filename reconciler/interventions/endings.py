"""Which interventions are over, and why: their time has come, Git says the same, or there is nothing left to be about. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from reconciler.interventions.record import Ending, Intervention
from solver.rules.entry import on_hold
from solver.rules.policy import Policy
from solver.rules.tree import QueueTree
from solver.world.cluster import Node
from solver.world.document import Document
from solver.world.quantities import Instant
from solver.world.workload import JobName, QueueName


class Over(Document, frozen=True):
    """An intervention is to end, in this way and for this reason."""

    intervention: Intervention
    ending: Ending
    cause: str


def endings(
    interventions: Iterable[Intervention],
    now: Instant,
    policy: Policy,
    declared: Iterable[Node],
    live_jobs: Collection[JobName],
) -> Iterator[Over]:
    """Those in force that are over. `declared`: the nodes as Git has them."""
    nodes = {node.name: node for node in declared}
    tree = QueueTree.of(policy)
    for each in interventions:
        if each.until <= now:
            yield Over(each, "expired", f"the {each.kind} was until {each.until}: {each.reason}")
            continue
        match each.subject.kind:
            case "node":
                found = _of_node(nodes.get(each.subject.name))  # type: ignore[call-overload]
            case "queue":
                found = _of_queue(QueueName(each.subject.name), tree)
            case "job":
                found = None if each.subject.name in live_jobs else ("over", "the job has ended")
        if found is not None:
            yield Over(each, *found)


Found = tuple[Ending, str] | None


def _of_node(node: Node | None) -> Found:
    if node is None:
        return "over", "the node is not declared any more"
    return ("agreed", "the policy cordons the node too now") if node.cordoned else None


def _of_queue(name: QueueName, tree: QueueTree) -> Found:
    if name not in tree.by_name:
        return "over", "the queue is not in the policy any more"
    by_git = next((queue.name for queue in on_hold(tree, name)), None)
    return ("agreed", f"the policy holds queue {by_git} too now") if by_git else None
