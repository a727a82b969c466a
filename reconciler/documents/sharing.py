"""What is wrong with SharingPolicy documents beside the others: pools and queues that do not exist, or are named twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reconciler.documents.declarations import Declaration
from reconciler.model.problem import Path, Problem, did_you_mean
from solver.policy.division import SharingPolicy


def sharing_problems(
    documents: Sequence[Declaration[SharingPolicy]], pools: set[str] | None, queues: set[str] | None
) -> Iterator[Problem]:
    """`pools`, `queues`: the names of all; None where some are unreadable."""
    owner: dict[str, Declaration[SharingPolicy]] = {}
    for sharing in documents:
        for index, pool in enumerate(sharing.value.pools):
            at: Path = ("spec", "pools", index)
            if pools is not None and pool not in pools:
                yield sharing.problem(at, "unknown-pool", f"there is no NodePool {pool}", did_you_mean(pool, pools))
            first = owner.setdefault(pool, sharing)
            if first is not sharing:
                message = f"the pool {pool} is shared already, at {first.origin}"
                yield sharing.problem(at, "duplicate-pool", message, "Name it in one SharingPolicy.")
        if sharing.value.mode == "mps" and sharing.value.oversubscription > 1:
            message = "only GPUs that are shared by time-slicing can be oversubscribed"
            fix = "Delete oversubscription, or choose mode: time-slicing."
            yield sharing.problem(("spec", "oversubscription"), "oversubscribed-mps", message, fix)
        yield from _group_problems(sharing, queues)


def _group_problems(sharing: Declaration[SharingPolicy], queues: set[str] | None) -> Iterator[Problem]:
    names: set[str] = set()
    group_of: dict[str, str] = {}
    for index, group in enumerate(sharing.value.trust_domains):
        at: Path = ("spec", "trustDomains", index)
        if group.name in names:
            message = f"there are two trust domains {group.name}"
            yield sharing.problem((*at, "name"), "duplicate-name", message, "Rename one, or merge them.")
        names.add(group.name)
        for place, queue in enumerate(group.queues):
            where: Path = (*at, "queues", place)
            if queues is not None and queue not in queues:
                yield sharing.problem(where, "unknown-queue", f"there is no Queue {queue}", did_you_mean(queue, queues))
            if group_of.setdefault(queue, group.name) != group.name:
                message = f"the queue {queue} is in the trust domain {group_of[queue]} already"
                yield sharing.problem(where, "two-trust-domains", message, "Keep it in one of them.")
