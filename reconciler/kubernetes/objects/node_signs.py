"""What a node says of itself against it: its conditions, taints and labels, as far as the HealthPolicy names them. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.kubernetes.objects.wire import KubeCondition, KubeNode
from reconciler.lifecycle.health.signs import Sign
from reconciler.model.health_policy import HealthPolicy
from reconciler.model.health_record import FindingKey
from solver.model.quantities import Instant


def node_signs(node: KubeNode, policy: HealthPolicy) -> Iterator[Sign]:
    """Everything that speaks against it now, each with since when, where the node says that."""
    conditions = {known.type: known for known in node.status.conditions}
    ready = conditions.get("Ready")
    if ready is None or ready.status != "True":
        yield Sign(FindingKey("lost", "", ""), "it is not ready", at=since_of(ready) if ready else None)
    for rule in policy.conditions:
        known = conditions.get(rule.type)
        if known is not None and known.status in rule.status:
            yield Sign(FindingKey("condition", "", rule.subject), condition_words(known), at=since_of(known))
    yield from _of_taints(node, policy)
    for label in policy.labels:
        value = node.metadata.labels.get(label.key)
        if value is not None and (not label.values or value in label.values):
            yield Sign(FindingKey("label", "", label.subject), f"it has the label {label.key}={value}")


def condition_words(known: KubeCondition) -> str:
    """`its condition XIDError is True since 2026-11-20T08:00:00Z (XID79)`."""
    since = since_of(known)
    told = f" since {since}" if since is not None else ""
    return f"its condition {known.type} is {known.status}{told}" + (f" ({known.reason})" if known.reason else "")


def since_of(known: KubeCondition) -> Instant | None:
    """Since when a condition has its status; None: it is not said, or in no way that can be read."""
    return instant_of(known.last_transition_time)


def _of_taints(node: KubeNode, policy: HealthPolicy) -> Iterator[Sign]:
    for rule in policy.taints:
        for taint in node.spec.taints:
            fits = rule.value in (None, taint.value) and rule.effect in (None, taint.effect)
            if taint.key == rule.key and fits:
                value = f"={taint.value}" if taint.value else ""
                told = f"it has the taint {taint.key}{value}:{taint.effect}"
                yield Sign(FindingKey("taint", "", rule.subject), told, at=instant_of(taint.time_added))
                break


def instant_of(written: str | None) -> Instant | None:
    """A time as the API server writes it; None: none is written, or in no way that can be read."""
    try:
        return Instant.parse(written) if written else None
    except ValueError:
        return None
