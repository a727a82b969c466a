"""ResourceQuotas of namespaces, for what they say of gangs whose pods can't be made: which quota has no room for one more.

Written against k8s.io/api 0.36 (core/v1). The API server keeps to them when pods are made; no round looks at them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction

from reconciler.kubernetes.objects.amounts import amount
from reconciler.kubernetes.objects.requests import Requests, requests_of
from reconciler.kubernetes.objects.wire import Amounts, Meta, Pod, Wire


class QuotaSpec(Wire, frozen=True):
    """`scopes`, `scope_selector`: it counts some pods only."""

    scopes: tuple[str, ...] = ()
    scope_selector: dict[str, object] | None = None


class QuotaStatus(Wire, frozen=True):
    """How much there may be of each resource, and how much there is."""

    hard: Amounts = {}  # noqa: RUF012  (msgspec copies an empty default for every instance)
    used: Amounts = {}  # noqa: RUF012


class ResourceQuota(Wire, frozen=True):
    """A ResourceQuota."""

    metadata: Meta
    spec: QuotaSpec = QuotaSpec()
    status: QuotaStatus = QuotaStatus()


class NamespaceQuotas:
    """All of them, by namespace."""

    def __init__(self) -> None:
        self._of: dict[str, dict[str, ResourceQuota]] = defaultdict(dict)

    def change(self, before: ResourceQuota | None, after: ResourceQuota | None) -> None:
        """One came, changed, or went."""
        for known in (before, after):
            if known:
                self._of[known.metadata.namespace].pop(known.metadata.name, None)
        if after:
            self._of[after.metadata.namespace][after.metadata.name] = after

    def against(self, pod: Pod) -> str:
        """Why no pod like this one can be made in its namespace now; "": no quota forbids it, or it counts some pods only."""
        known = self._of.get(pod.metadata.namespace, {})
        return next((why for name in sorted(known) for why in _against(known[name], pod)), "")


def _against(quota: ResourceQuota, pod: Pod) -> Iterator[str]:
    if quota.spec.scopes or quota.spec.scope_selector:
        return
    try:
        asked = {**_as_counted(requests_of(pod.spec)), "pods": Fraction(1), "count/pods": Fraction(1)}
        hard, used = (
            {name: amount(value) for name, value in of.items()} for of in (quota.status.hard, quota.status.used)
        )
    except ValueError:
        return  # what the API server can't read either it refuses for another reason
    for name in sorted(hard.keys() & asked.keys()):
        if used.get(name, Fraction(0)) + asked[name] > hard[name]:
            there = f"{quota.status.used.get(name, 0)} of {quota.status.hard[name]} {name} are used"
            yield f"ResourceQuota {quota.metadata.name} lets no more be made, {there}"


def _as_counted(asked: Requests) -> Requests:
    """By the names under which quotas count requests."""
    short = {name: number for name, number in asked.items() if name in ("cpu", "memory")}
    return {**{f"requests.{name}": number for name, number in asked.items()}, **short}
