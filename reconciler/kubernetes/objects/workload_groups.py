"""Gangs of Kubernetes 1.35, of which pods say by `spec.workloadRef` in which group of which Workload they are.

Written against k8s.io/api 0.35 (scheduling/v1alpha1, core/v1). Later versions have PodGroups of their own (podgroups.py). Pods with
different replica keys are gangs of their own, of one size.
"""

from __future__ import annotations

from typing import Final

from reconciler.kubernetes.objects.object_kinds import ObjectKind
from reconciler.kubernetes.objects.podgroups import Group
from reconciler.kubernetes.objects.pods import label_priority, queue_of
from reconciler.kubernetes.objects.resource import Resource
from reconciler.kubernetes.objects.wire import Meta, Wire, WorkloadRef

BETWEEN: Final = ":"
"""Between the names of Workload, group and replica, none of which has it."""


class _Gang(Wire, frozen=True):
    min_count: int = 1


class _Policy(Wire, frozen=True):
    gang: _Gang | None = None


class _PodGroup(Wire, frozen=True):
    name: str
    policy: _Policy = _Policy()


class _Spec(Wire, frozen=True):
    pod_groups: tuple[_PodGroup, ...] = ()


def gang_name(ref: WorkloadRef) -> str:
    """How the gang of these pods is called."""
    return BETWEEN.join(part for part in (ref.name, ref.pod_group, ref.pod_group_replica_key) if part)


def group_name(gang: str) -> str:
    """The group of a gang: that of all of its replicas."""
    return BETWEEN.join(gang.split(BETWEEN)[:2])


def _groups(meta: Meta, spec: _Spec) -> tuple[Group, ...]:
    return tuple(
        Group(
            source="workload",
            namespace=meta.namespace,
            name=f"{meta.name}{BETWEEN}{one.name}",
            least=one.policy.gang.min_count if one.policy.gang else None,
            queue=queue_of(meta),
            priority_class=label_priority(meta),
        )
        for one in spec.pod_groups
    )


WORKLOAD_GROUPS: Final = ObjectKind("Workload", (Resource("scheduling.k8s.io/v1alpha1", "workloads"),), _Spec, _groups)
