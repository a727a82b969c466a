"""Which interventions are over, and why: their time has come, Git says the same, or there is nothing left to be about. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from reconciler.model.intervention_record import Ending, Intervention, Subject
from solver.model.cluster import Node, NodeName
from solver.model.document import Document
from solver.model.quantities import Instant
from solver.model.workload import QueueName
from solver.policy.policy import Policy
from solver.policy.tree import QueueTree
from solver.queueing.entry import on_hold


class Over(Document, frozen=True):
    """An intervention is to end, in this way and for this reason."""

    intervention: Intervention
    ending: Ending
    cause: str


Found = tuple[Ending, str] | None


def endings(
    interventions: Iterable[Intervention],
    now: Instant,
    policy: Policy,
    declared: Iterable[Node],
    live_jobs: Collection[str],
) -> Iterator[Over]:
    """Those in force that are over. `declared`: the nodes as Git has them."""
    nodes, tree = {node.name: node for node in declared}, QueueTree.of(policy)

    def found(subject: Subject) -> Found:
        match subject.kind:
            case "node":
                return _of_node(nodes.get(NodeName(subject.name)))
            case "queue":
                return _of_queue(QueueName(subject.name), tree)
            case "job":
                return None if subject.name in live_jobs else ("over", "the job has ended")

    for each in interventions:
        expired: Found = ("expired", f"{each} is over") if each.until <= now else None
        why = expired or found(each.subject)
        if why is not None:
            yield Over(each, *why)


def _of_node(node: Node | None) -> Found:
    if node is None:
        return "over", "the node is not declared any more"
    return ("agreed", "the policy repository cordons the node too now") if node.cordoned else None


def _of_queue(name: QueueName, tree: QueueTree) -> Found:
    if name not in tree.by_name:
        return "over", "the queue is not in the policy any more"
    by_git = next((queue.name for queue in on_hold(tree, name)), None)
    return ("agreed", f"the policy holds queue {by_git} now") if by_git else None
