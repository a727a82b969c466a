"""The shipped manifests on a cluster for tests: each object is tried strictly, then made, until what keeps others out does so."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from hack.kubernetes.cluster import Cluster
from hack.kubernetes.shipped import NAMESPACE, base_objects, path_of
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.refusals import NotAllowedError
from reconciler.kubernetes.objects.controllers import CONTROLLERS
from reconciler.kubernetes.objects.held_back import VOLCANO_JOBS
from reconciler.kubernetes.objects.object_kinds import ObjectKind
from reconciler.kubernetes.objects.podgroups import GROUPS
from tests.kubernetes.fencing import until_in_force
from tests.kubernetes.kueue import kueue_definitions
from tests.kubernetes.mirrored import CRDS, a_definition
from tests.kubernetes.sessions import CONFIG_MAPS, SOON_S, session

BUILT_IN = ("batch", "scheduling.k8s.io")


async def install(cluster: Cluster, definitions: Sequence[dict[str, Any]] = ()) -> None:
    """All that deploy/kubernetes has, each tried without effect first; returns once what keeps others out is in force.

    `definitions`: of kinds as their makers write them; of all others that Quorate reads there is one that takes anything.
    """
    objects = base_objects()
    (namespace,) = (each for each in objects if each["kind"] == "Namespace")
    async with session(cluster) as api:
        await api.create(path_of(namespace), namespace)
        for each in objects:
            if each is not namespace:
                await api.create(path_of(each, dryRun="All"), each)
                await api.create(path_of(each), each)
        await _with_other_makers(api, definitions)
        await _guarded(api)
    await until_in_force(cluster)


async def _with_other_makers(api: Api, definitions: Sequence[dict[str, Any]]) -> None:
    """What others define and Quorate reads where it is installed, so that it is read here."""
    made = list(definitions)
    kinds: tuple[ObjectKind[Any, Any], ...] = (*GROUPS, *CONTROLLERS)
    for kind in kinds:
        group, _, version = kind.resources[0].version.partition("/")
        if group not in BUILT_IN:
            made.append(a_definition(group, version, kind.name, kind.resources[0].plural))
    group, _, version = VOLCANO_JOBS.version.partition("/")
    made += [*kueue_definitions(), a_definition(group, version, "Job", VOLCANO_JOBS.plural)]
    for definition in {each["metadata"]["name"]: each for each in reversed(made)}.values():
        await api.create(CRDS.path(), definition)


async def _guarded(api: Api) -> None:
    """Admission policies are in force a moment after they were made."""
    forged = {"metadata": {"name": "quorate-policy-0"}}
    async with asyncio.timeout(SOON_S):
        while True:
            try:
                await api.create(f"{CONFIG_MAPS.path(NAMESPACE)}?dryRun=All", forged)
            except NotAllowedError:
                return
            await asyncio.sleep(0.05)
