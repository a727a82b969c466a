"""What is wrong with HealthPolicy documents: more than one, times that undo each other, actions that nothing leads to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from reconciler.documents.clusters import ONE_OF_A_KIND
from reconciler.documents.declarations import Declaration
from reconciler.model.health_policy import HealthPolicy
from reconciler.model.problem import Path, Problem
from solver.model.quantities import Duration

LEASE_LEAST: Final = Duration(10_000)
"""Two beats of an agent."""


def health_problems(documents: Sequence[Declaration[HealthPolicy]]) -> Iterator[Problem]:
    """Everything that their schema can't say."""
    for health in documents[1:]:
        message = f"there is a HealthPolicy already, at {documents[0].origin}"
        yield health.problem(("kind",), "second-health-policy", message, ONE_OF_A_KIND)
    for health in documents:
        yield from _time_problems(health)
        nic = health.value.nic
        if not nic.names and nic != HealthPolicy().nic:
            message, fix = "no network interface is named, so nothing is judged", "List them under names."
            yield health.problem(("spec", "nic"), "unused-rule", message, fix)


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
    )
    shortest = min(policy.suspect_ttl, policy.bad_node_ttl)
    for at, span in held:
        if span > shortest:
            field = ".".join(map(str, at[1:]))
            message = f"{field} is {span}, and what is found after so long counts for {shortest} alone"
            yield health.problem(
                at, "forgotten-too-soon", message, f"Lower {field}, or raise suspectTtl and badNodeTtl."
            )
