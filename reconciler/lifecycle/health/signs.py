"""What speaks against a node or GPU at this moment, read off what is seen of it. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from reconciler.lifecycle.health.stragglers import Accusation
from reconciler.lifecycle.health.xid import XidClass, class_of_xid
from reconciler.model.facts import GpuFacts, NodeFacts, Xid
from reconciler.model.health_policy import HealthPolicy, NicRule
from reconciler.model.health_record import FindingKey, FindingKind
from solver.model.cluster import Node
from solver.model.quantities import Instant

_XID_KINDS: dict[XidClass, FindingKind] = {
    "application": "xid-application",
    "reset": "xid-reset",
    "drain": "xid-drain",
    "replace": "xid-replace",
}


class Sign(NamedTuple):
    """Something is so now, since `at` where that is said; or it happened `at` a time: then `mark` says which time that was."""

    key: FindingKey
    detail: str
    mark: int | None = None
    at: Instant | None = None


def signs_of(
    seen: Node | None, facts: NodeFacts | None, accused: Iterable[Accusation], policy: HealthPolicy
) -> Iterator[Sign]:
    """Everything that speaks against one declared node. `seen` None: the backend does not know it, or not yet."""
    if seen is None or not seen.ready:
        yield Sign(FindingKey("lost", "", ""), "it is not ready")
    for slow in accused:
        told = f"task {slow.task} of {slow.job} does {slow.rate:.3g} steps a second, half of its peers {slow.median:.3g} or more"
        yield Sign(FindingKey("straggler", "", slow.job), told)
    if facts is not None:
        yield from _of_nics(facts, policy.nic)
        for gpu in facts.gpus:
            yield from _of_gpu(gpu, policy)


def _of_nics(facts: NodeFacts, rule: NicRule) -> Iterator[Sign]:
    known = {nic.name: nic for nic in facts.nics}
    for name in rule.names:
        nic = known.get(name)
        if nic is None or not nic.up:
            yield Sign(FindingKey("nic-down", "", name), f"{name} is {'not there' if nic is None else 'down'}")
        elif nic.speed_mbps is not None and nic.speed_mbps < rule.slower_than_mbps:
            told = f"{name} runs at {nic.speed_mbps} Mbit/s, less than {rule.slower_than_mbps}"
            yield Sign(FindingKey("nic-slow", "", name), told)


def _of_gpu(gpu: GpuFacts, policy: HealthPolicy) -> Iterator[Sign]:
    if gpu.xids:
        yield from _of_xids(gpu)
    if gpu.lost:
        yield Sign(FindingKey("gpu-lost", gpu.id, ""), "it does not answer its driver")
    if gpu.uncorrectable_errors:
        told = f"its memory has had {gpu.uncorrectable_errors} errors that can't be corrected"
        yield Sign(FindingKey("uncorrectable", gpu.id, ""), told, gpu.uncorrectable_errors)
    if gpu.remap_pending:
        yield Sign(FindingKey("remap-pending", gpu.id, ""), "rows of its memory are remapped once it is reset")
    if gpu.remap_failed:
        yield Sign(FindingKey("remap-failed", gpu.id, ""), "a row of its memory could not be remapped")
    slowed = set(gpu.throttle_reasons).intersection(policy.throttle.reasons) if gpu.throttle_reasons else ()
    if slowed:
        yield Sign(FindingKey("throttled", gpu.id, ""), f"it is slowed down ({', '.join(sorted(slowed))})")


def _of_xids(gpu: GpuFacts) -> Iterator[Sign]:
    """Of each class that which came last."""
    newest: defaultdict[FindingKind, Xid] = defaultdict(lambda: Xid(0, Instant(-1)))
    for xid in gpu.xids:
        kind = _XID_KINDS[class_of_xid(xid.number)]
        newest[kind] = max(newest[kind], xid, key=lambda each: (each.at, each.number))
    for kind, xid in newest.items():
        yield Sign(FindingKey(kind, gpu.id, ""), f"XID {xid.number}", int(xid.at), xid.at)
