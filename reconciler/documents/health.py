"""What is wrong with HealthPolicy documents: more than one, times that undo each other, actions that nothing leads to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from reconciler.documents.clusters import ONE_OF_A_KIND
from reconciler.documents.declarations import Declaration
from reconciler.model.health_policy import HealthPolicy
from reconciler.model.problem import Path, Problem
from solver.model.quantities import Duration

LEASE_LEAST: Final = Duration(10_000)
"""Two beats of an agent."""


_WELL: Final = {"Ready": "True"} | dict.fromkeys(
    ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"), "False"
)
"""What the conditions of a kubelet say of nodes that are well (core/v1)."""


def health_problems(documents: Sequence[Declaration[HealthPolicy]]) -> Iterator[Problem]:
    """Everything that their schema can't say."""
    for health in documents[1:]:
        message = f"there is a HealthPolicy already, at {documents[0].origin}"
        yield health.problem(("kind",), "second-health-policy", message, ONE_OF_A_KIND)
    for health in documents:
        yield from _time_problems(health)
        yield from _node_problems(health)
        nic = health.value.nic
        if not nic.names and nic != HealthPolicy().nic:
            message, fix = "no network interface is named, so nothing is judged", "List them under names."
            yield health.problem(("spec", "nic"), "unused-rule", message, fix)


def _node_problems(health: Declaration[HealthPolicy]) -> Iterator[Problem]:
    """Rules about Kubernetes nodes that speak against every node, or that say the same twice."""
    policy = health.value
    for number, rule in enumerate(policy.conditions):
        if _WELL.get(rule.type) in rule.status:
            message = f"{rule.type} is {_WELL[rule.type]} on every node that is well"
            least = '["False", Unknown]' if rule.type == "Ready" else '["True"]'
            fix = f"Write the statuses that speak against a node, such as status: {least}."
            yield health.problem(("spec", "conditions", number), "condition-of-well-nodes", message, fix)
    subjects = {
        "conditions": [rule.subject for rule in policy.conditions],
        "taints": [rule.subject for rule in policy.taints],
        "labels": [rule.subject for rule in policy.labels],
    }
    for field, said in subjects.items():
        known = Counter[str]()
        for number, subject in enumerate(said):
            known[subject] += 1
            if known[subject] > 1:
                message = f"{subject} is said above already"
                fix = "Take one of them away; a rule with another action may stand beside it."
                yield health.problem(("spec", field, number), "second-rule", message, fix)


def _time_problems(health: Declaration[HealthPolicy]) -> Iterator[Problem]:
    """What is over before it has been so for long enough never counts."""
    policy = health.value
    if policy.node_lease >= policy.node_lost_after:
        message = f"a node is lost after {policy.node_lost_after}, before its lease of {policy.node_lease} is over"
        yield health.problem(
            ("spec", "nodeLease"), "lost-before-lease", message, "Lower nodeLease, or raise nodeLostAfter."
        )
    if policy.node_lease < LEASE_LEAST:
        message = f"an agent that speaks up every 5 s is late sometimes; a lease of {policy.node_lease} lets nodes come and go"
        yield health.problem(("spec", "nodeLease"), "lease-too-short", message, f"Write at least {LEASE_LEAST}.")
    held: tuple[tuple[Path, Duration], ...] = (
        (("spec", "nodeLostAfter"), policy.node_lost_after),
        (("spec", "throttle", "for"), policy.throttle.held),
        (("spec", "nic", "downFor"), policy.nic.down_for),
        (("spec", "straggler", "for"), policy.straggler.held),
        *((("spec", "conditions", number, "for"), rule.held) for number, rule in enumerate(policy.conditions)),
        *((("spec", "taints", number, "for"), rule.held) for number, rule in enumerate(policy.taints)),
        *((("spec", "labels", number, "for"), rule.held) for number, rule in enumerate(policy.labels)),
    )
    shortest = min(policy.suspect_ttl, policy.bad_node_ttl)
    for at, span in held:
        if span > shortest:
            field = ".".join(map(str, at[1:]))
            message = f"{field} is {span}, and what is found after so long counts for {shortest} alone"
            yield health.problem(
                at, "forgotten-too-soon", message, f"Lower {field}, or raise suspectTtl and badNodeTtl."
            )
