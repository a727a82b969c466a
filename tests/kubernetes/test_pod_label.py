"""Pods bear Quorate's label from the beginning, so that an Eviction is judged by the pods of other schedulers alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hack.kubernetes.cluster import Cluster
from hack.kubernetes.fence import install_pod_label
from hack.kubernetes.shipped import DEPLOY, objects_in
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.leader import Leadership
from reconciler.kubernetes.client.refusals import RefusedError
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.resource import PODS, Resource
from reconciler.protocols.backend import Epoch
from tests.kubernetes.fencing import as_mighty_quorate, led_by
from tests.kubernetes.sessions import REAL, a_namespace, a_pod, session

pytestmark = REAL

LEADER = Leadership("a", Epoch(7), 0)
BINDINGS = Resource("admissionregistration.k8s.io/v1", "mutatingadmissionpolicybindings")
POLICIES = Resource("admissionregistration.k8s.io/v1", "mutatingadmissionpolicies")


async def labels_of(admin: Api, space: str, pod: dict[str, Any]) -> dict[str, str]:
    made = await admin.create(PODS.path(space), pod)
    return made["metadata"].get("labels", {})


def test_pods_of_quorate_bear_its_label_from_the_beginning_and_no_others_do(fenced: Cluster) -> None:
    async def story() -> None:
        async with session(fenced) as admin, as_mighty_quorate(fenced) as api:
            await led_by(fenced, LEADER)
            space = await a_namespace(admin)
            await install_pod_label(admin)
            try:
                plain, labelled, theirs = a_pod("plain"), a_pod("labelled"), a_pod("theirs")
                labelled["metadata"]["labels"] = {"app": "train"}
                theirs["spec"]["schedulerName"] = "default-scheduler"
                assert await labels_of(admin, space, plain) == {names.FENCED: "true"}
                assert await labels_of(admin, space, labelled) == {"app": "train", names.FENCED: "true"}
                assert await labels_of(admin, space, theirs) == {}
                of_quorate = {"annotations": LEADER.stamp, "labels": {names.FENCED: "true"}}
                await api.create(PODS.path(space, "plain", "eviction"), {"metadata": {"name": "plain", **of_quorate}})
                with pytest.raises(RefusedError, match="evicts only pods whose schedulerName is quorate"):
                    await api.create(
                        PODS.path(space, "theirs", "eviction"), {"metadata": {"name": "theirs", **of_quorate}}
                    )
            finally:
                for each in objects_in((DEPLOY / "pod-label" / "policy.yaml").read_text()):
                    kind = BINDINGS if each["kind"].endswith("Binding") else POLICIES
                    await admin.delete(kind.path("", each["metadata"]["name"]))

    asyncio.run(story())
