"""What watches have kept through any history is what a fresh list shows, and a pass costs what has changed."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any, Literal, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.kubernetes.control.pod_site import PodSite
from reconciler.kubernetes.control.sight import Remembered, cluster_sight, snapshot_from
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.cluster import ClusterIndex
from reconciler.kubernetes.objects.pod_view import PodView, view_of
from reconciler.kubernetes.objects.resource import NODES, PODS
from solver.model.document import encode
from solver.model.quantities import Duration
from solver.model.snapshot import Snapshot
from solver.model.snapshot_patch import patch_between, patched
from tests.drawn import worlds
from tests.reconciler.kubernetes.control.followed import NOW, POLICY, Followed, a_node, a_running, a_waiting, followed
from tests.reconciler.kubernetes.samples import Sent

NOTES: list[Sent] = [
    {},
    {},
    {names.GANG: "g", names.GANG_SIZE: "2"},
    {names.GANG_PLAN: "no journal"},
    {names.EVICT: "no record"},
    {names.TIME_LIMIT: "2h"},
]
WRITES = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["p1", "p2", "p3", "p4"]),
        "on": st.sampled_from(["", "n001", "n002"]),
        "gpus": st.sampled_from([0, 1, 8]),
        "phase": st.sampled_from(["Pending", "Running", "Succeeded"]),
        "notes": st.sampled_from(NOTES),
        "claims": st.sampled_from([(), (), ({"name": "gpu", "resourceClaimName": "c"},)]),
        "scheduler": st.sampled_from(["quorate", "quorate", "default-scheduler"]),
    }
)


FIXED = ("schedulerName", "resourceClaims", "containers")
"""Another pod of the name has others: the server lets none change them."""

Kind = Literal["pod", "no pod", "node", "no node", "forget nodes", "forget pods", "look", "catch up"]


class Deed(NamedTuple):
    """Something is written, or deleted by its name; a watch is forgotten, so that all is listed again; or a pass looks."""

    kind: Kind
    drawn: Any = None


DEEDS = st.lists(
    st.one_of(
        st.builds(Deed, st.sampled_from(["pod", "pod", "pod", "no pod"]), WRITES),
        st.builds(Deed, st.sampled_from(["node", "no node"]), st.integers(1, 3)),
        st.builds(Deed, st.sampled_from(["forget nodes", "forget pods", "look", "catch up"]), st.none()),
    ),
    min_size=4,
    max_size=25,
)


def done(world: Followed, deed: Deed) -> None:
    match deed.kind:
        case "pod":
            _write(world, deed.drawn)
        case "no pod":
            if ("vision", deed.drawn["name"]) in world.objects.there(PODS):
                world.objects.drop(PODS, "vision", deed.drawn["name"])
        case "node":
            world.objects.put(NODES, a_node(deed.drawn))
        case "no node":
            if ("", f"n{deed.drawn:03}") in world.objects.there(NODES):
                world.objects.drop(NODES, "", f"n{deed.drawn:03}")
        case "forget nodes":
            world.objects.forget(NODES)
        case "forget pods":
            world.objects.forget(PODS)
        case "look" | "catch up":
            pass


def _write(world: Followed, drawn: dict[str, Any]) -> None:
    """A pod is so from now on: the same one, or another of its name."""
    spec = {"schedulerName": drawn["scheduler"], "resourceClaims": drawn["claims"]}
    more = {"phase": drawn["phase"], "annotations": drawn["notes"], "spec": spec}
    sent = a_waiting(drawn["name"], drawn["gpus"], on=drawn["on"], **more)
    before = world.objects.there(PODS).get(("vision", drawn["name"]))
    if before and any(before["spec"][field] != sent["spec"][field] for field in FIXED):
        world.objects.drop(PODS, "vision", drawn["name"])
    world.objects.put(PODS, sent)


def meaning(world: Followed) -> tuple[bytes, PodView, ClusterIndex]:
    """All that passes go by."""
    cluster, pods = world.mirror.cluster(), world.mirror.pod_view()
    return encode([cluster.nodes, cluster.gangs, cluster.remarks, cluster.node_sets]), pods, cluster.index


def snapshot(world: Followed) -> Snapshot:
    """What a round would be decided on."""
    sight = cluster_sight(world.mirror.cluster(), world.mirror.pod_view(), {}, Duration(60_000), NOW)
    return snapshot_from(NOW, sight, POLICY, (), Remembered())


@worlds(60)
@given(DEEDS)
def test_what_watches_kept_is_what_a_fresh_list_shows(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[Deed]
) -> None:
    async def story() -> None:
        async with followed(tmp_path_factory.mktemp("kept"), a_node(1)) as world:
            snapshots = [snapshot(world)]
            for deed in drawn:
                done(world, deed)
                if deed.kind == "look":  # at whatever has come so far, of each kind
                    snapshots.append(snapshot(world))
                if deed.kind == "catch up":
                    await world.caught_up()
            await world.caught_up()
            snapshots.append(snapshot(world))
            kept, pods, index = meaning(world)
            async with followed(tmp_path_factory.mktemp("fresh"), served=world.objects) as fresh:
                assert meaning(fresh) == (kept, pods, index)
                assert snapshot(fresh).digest == snapshots[-1].digest
                their_pods, their_index = fresh.mirror.pod_view(), fresh.mirror.cluster().index
            assert list(index.gangs) == list(their_index.gangs)
            for found in (their_pods, view_of(pods.values())):
                assert (found.noted, found.claiming, found.gpu_nodes) == (pods.noted, pods.claiming, pods.gpu_nodes)
            for before, after in pairwise(snapshots):  # as they go to a round worker
                assert patched(before, patch_between(before, after)).digest == after.digest

    asyncio.run(story())


def test_a_history_with_lists_read_again_is_followed(tmp_path: Path) -> None:
    async def story() -> None:
        async with followed(tmp_path, a_node(1), a_waiting("p1")) as world:
            world.objects.forget(PODS)
            world.objects.put(PODS, a_waiting("p2"))
            await world.caught_up()
            assert len(world.mirror.pod_view()) == 2
            assert world.mirror.pods.standing().breaks == 1

    asyncio.run(story())


def lines_of(work: Callable[[], object]) -> int:
    """How many lines of the reconciler's it takes; the solver's model checks each snapshot as a whole."""
    count = 0

    def line(_: FrameType, event: str, __: object) -> Any:
        nonlocal count
        count += event == "line"
        return line

    def call(frame: FrameType, *_: object) -> Any:
        return line if "/reconciler/" in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(call)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


async def lines_of_passes(folder: Path, nodes: int) -> dict[str, int]:
    """Of a look and the snapshot that it gives, where nothing, and where one pod, has changed.

    Two pods run on each node, one of another scheduler's beside a gang's, and as many gangs of two wait.
    """
    objects = [a_node(number) for number in range(nodes)]
    for number in range(nodes):
        gang = {names.GANG: f"g{number}", names.GANG_SIZE: "2"}
        objects.append(a_running(f"runs-{number}", f"n{number:03}", 4))
        objects.append(a_running(f"other-{number}", f"n{number:03}", 0, spec={"schedulerName": "default-scheduler"}))
        objects += [a_waiting(f"waits-{number}-{each}", annotations=gang) for each in range(2)]
    async with followed(folder, *objects) as world:
        site = PodSite(world.plane)
        site.lead()

        def sees() -> None:
            looking = site.look(world.policies.in_force)
            with pytest.raises(StopIteration) as ended:  # nothing is waited for where it only looks
                looking.send(None)
            site.accrue(ended.value.value)
            site.observe(ended.value.value)

        sees()
        found = {"nothing": lines_of(sees)}
        for number, change in enumerate(CHANGES_OF_ONE):
            world.objects.put(PODS, CHANGES_OF_ONE[change](number))
            await world.caught_up()
            found[change] = lines_of(sees)
        return found


CHANGES_OF_ONE: dict[str, Callable[[int], Sent]] = {
    "a pod that is bound": lambda _: a_running("runs-0", "n001", 4),
    "a pod that has come": lambda _: a_waiting("new"),
    "a pod with a note": lambda _: a_running("runs-1", "n001", 4, annotations={names.EVICT: "no record"}),
    "a pod of another scheduler": lambda _: a_running(
        "other-2", "n003", 0, spec={"schedulerName": "default-scheduler"}
    ),
}


def test_a_look_costs_what_has_changed_and_not_what_there_is(tmp_path: Path) -> None:
    async def story() -> None:
        (tmp_path / "few").mkdir()
        (tmp_path / "many").mkdir()
        few, many = await lines_of_passes(tmp_path / "few", 20), await lines_of_passes(tmp_path / "many", 80)
        assert few == many

    asyncio.run(story())
