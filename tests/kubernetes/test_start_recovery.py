"""Gangs whose binder was killed, or whose pods were taken from it: whoever leads next finishes or releases them whole."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import NamedTuple

import msgspec
import structlog

from hack.kubernetes.cluster import Cluster
from hack.kubernetes.fence import QUORATE
from hack.kubernetes.shipped import GROUPS
from reconciler.kubernetes.binder.binding import Binder, GangBinding
from reconciler.kubernetes.binder.partial_starts import AGAIN_S, ROLL_FORWARD_S, BindableNodes
from reconciler.kubernetes.binder.start_recovery import RecoveryOutcome, StartRecovery
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.leader import Leadership
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.pod_view import view_of
from reconciler.kubernetes.objects.resource import PODS
from reconciler.kubernetes.objects.wire import KubeNode, Meta, Pod
from reconciler.model.clock import SystemClock
from solver.model.quantities import Instant
from tests.kubernetes.candidate import Bind
from tests.kubernetes.fencing import as_quorate, led_by
from tests.kubernetes.sessions import REAL, a_namespace, a_pod, audited, session
from tests.kubernetes.test_binding import LEADER, OTHER, a_gang, lead

pytestmark = REAL

NODES = {name: KubeNode(Meta(name)) for name in (f"n{number}" for number in range(8))}
GROUND = BindableNodes(NODES)
SEEDS = range(12)
GANGS, SIZE = 5, 4
STEPS = 2 * GANGS * SIZE
"""For each pod one before its binding leaves, and one when it is answered."""


class Later(SystemClock):
    """As if so much time had gone by."""

    def __init__(self, by_s: float) -> None:
        self.by_s = by_s

    def now(self) -> Instant:
        return super().now().after(int(self.by_s * 1000))


class _Pods(msgspec.Struct):
    items: list[Pod]


async def pods_of(api: Api, space: str) -> list[Pod]:
    return (await api.get(PODS.path(space), _Pods)).items


class Scene(NamedTuple):
    """`leave`: what a kubelet does with pods that are being deleted."""

    admin: Api
    api: Api
    space: str

    async def leave(self) -> None:
        for pod in await pods_of(self.admin, self.space):
            if pod.metadata.deletion_timestamp:
                await self.admin.delete(PODS.path(*pod.key), {"gracePeriodSeconds": 0})

    def finisher(self, by_s: float, who: Leadership = OTHER, binder: Binder | None = None) -> StartRecovery:
        clock = Later(by_s)
        binder = binder or Binder(self.api, lambda: who, clock)
        return StartRecovery(self.api, lambda: who, binder, clock, structlog.get_logger())

    async def finished(self, finisher: StartRecovery) -> list[RecoveryOutcome]:
        """Passes, until there is nothing more to do."""
        passes = []
        while True:
            before = await pods_of(self.admin, self.space)
            passes.append(await finisher.finish(view_of(before), GROUND))
            await self.leave()
            if await pods_of(self.admin, self.space) == before:
                return passes


@asynccontextmanager
async def scene(cluster: Cluster, who: Leadership) -> AsyncIterator[Scene]:
    await led_by(cluster, who)
    async with session(cluster) as admin, as_quorate(cluster) as api:
        yield Scene(admin, api, await a_namespace(admin))


def killed_at(step: int, gangs: Sequence[GangBinding], cluster: Cluster, folder: Path) -> int:
    """A binder of its own process, that is gone at this step; how many steps it has otherwise."""
    file = folder / "bind.json"
    bind = Bind(str(cluster.kubeconfig(QUORATE, GROUPS)), LEADER.holder, LEADER.epoch, list(gangs), step)
    file.write_bytes(msgspec.json.encode(bind))
    command = [sys.executable, "-m", "tests.kubernetes.candidate", "bind", str(file)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == (-9 if step else 0), run.stderr
    return int(run.stdout or 0)


def bound_of(gang: GangBinding, pods: Sequence[Pod]) -> list[str]:
    wanted = {pod.key: pod for pod in gang.pods}
    return [pod.spec.node_name for pod in pods if pod.key in wanted and pod.spec.node_name]


def test_kill_9_in_the_middle_of_gangs_leaves_none_of_them_partial(fenced: Cluster, tmp_path: Path) -> None:
    async def story() -> None:
        partial = [await killed_and_followed(fenced, tmp_path, Random(seed)) for seed in SEEDS]
        assert sum(count > 0 for count in partial) >= len(SEEDS) // 3, "otherwise nothing was tried"

    asyncio.run(story())


async def killed_and_followed(cluster: Cluster, folder: Path, chance: Random) -> int:
    """How many gangs were partial when their binder was killed, after all that was asserted of what became of them."""
    by_s = chance.choice((AGAIN_S, ROLL_FORWARD_S))
    async with scene(cluster, LEADER) as at:
        gangs = [await a_gang(at.admin, at.space, f"g{number}", SIZE) for number in range(GANGS)]
        await asyncio.to_thread(killed_at, chance.randint(2, STEPS), gangs, cluster, folder)
        await led_by(cluster, OTHER)
        pods = await pods_of(at.admin, at.space)
        begun = {gang.job: len(bound_of(gang, pods)) for gang in gangs}
        partial = {job for job, count in begun.items() if 0 < count < SIZE}
        passes = await at.finished(at.finisher(by_s))
        pods = await pods_of(at.admin, at.space)
        for gang in gangs:
            whole = begun[gang.job] == SIZE or (by_s == AGAIN_S and gang.job in partial)
            assert bound_of(gang, pods) == ([pod.node for pod in gang.pods] if whole else []), begun
        released = {release.job for one in passes for release in one.released}
        assert released == (partial if by_s == ROLL_FORWARD_S else set())
        assert len(passes) <= 4
        assert not any(names.GANG_PLAN in pod.metadata.annotations for pod in pods)
        return len(partial)


def test_a_binder_that_is_not_killed_has_so_many_steps(fenced: Cluster, tmp_path: Path) -> None:
    async def story() -> None:
        async with scene(fenced, LEADER) as at:
            gangs = [await a_gang(at.admin, at.space, f"g{number}", SIZE) for number in range(GANGS)]
            assert await asyncio.to_thread(killed_at, 0, gangs, fenced, tmp_path) == STEPS

    asyncio.run(story())


def test_what_was_made_anew_takes_its_place_also_the_pod_with_the_journal(fenced: Cluster) -> None:
    async def story() -> None:
        async with scene(fenced, LEADER) as at:
            gang, binder = await partial(at)
            await at.admin.delete(PODS.path(at.space, "g-0"))
            await at.leave()
            for name in ("g-0", "g-2"):
                await at.admin.create(PODS.path(at.space), a_pod(name))
            passes = await at.finished(at.finisher(AGAIN_S, LEADER, binder))
            pods = await pods_of(at.admin, at.space)
            assert bound_of(gang, pods) == ["n0", "n1", "n2", "n3"]
            assert [pod.metadata.annotations[names.DEVICES] for pod in pods] == [f"n{n}/0,n{n}/1" for n in range(4)]
            assert not any(names.GANG_PLAN in pod.metadata.annotations for pod in pods)
            assert [len(one.again) for one in passes] == [1, 0, 0]
            assert not binder.remembered

    asyncio.run(story())


async def partial(at: Scene) -> tuple[GangBinding, Binder]:
    """A gang of four without its third pod, which somebody had deleted."""
    gang = await a_gang(at.admin, at.space, "g", 4)
    await at.admin.delete(PODS.path(at.space, "g-2"))
    binder = Binder(at.api, lead, SystemClock())
    (outcome,) = await binder.bind([gang])
    assert [pod.answer for pod in outcome.pods] == ["bound", "bound", "gone", "bound"]
    return gang, binder


def test_a_gang_that_can_not_be_whole_in_time_loses_its_bound_pods_and_is_told(fenced: Cluster) -> None:
    async def story() -> None:
        async with scene(fenced, LEADER) as at:
            gang, binder = await partial(at)
            early = await at.finished(at.finisher(ROLL_FORWARD_S - 5, LEADER, binder))
            assert not any(one.released for one in early)
            first, *_ = await at.finished(at.finisher(ROLL_FORWARD_S, LEADER, binder))
            (release,) = first.released
            assert (release.job, release.attempt) == (gang.job, gang.attempt)
            assert release.why == "1 of 4 pods not bound 30 s after the first, such as g-2"
            assert await pods_of(at.admin, at.space) == []
            verbs = [
                event["verb"]
                for event in audited(fenced)
                if event["user"]["username"] == QUORATE and (event["objectRef"] or {}).get("namespace") == at.space
            ]
            written = [verb for verb in verbs if verb in ("patch", "delete")]
            assert written == ["patch"] * 3 + ["delete"] * 3, "what is to be deleted is recorded first"

    asyncio.run(story())


def test_where_a_node_is_gone_or_others_took_a_pod_it_is_released_at_once(fenced: Cluster) -> None:
    async def story() -> None:
        async with scene(fenced, LEADER) as at:
            _, binder = await partial(at)
            await at.admin.create(PODS.path(at.space), a_pod("g-2"))
            pods = await pods_of(at.admin, at.space)
            finished = await at.finisher(0, LEADER, binder).finish(
                view_of(pods), BindableNodes({name: node for name, node in NODES.items() if name != "n2"})
            )
            assert [release.why for release in finished.released] == [
                "the node n2 is gone, which the pod g-2 was to have"
            ]
        async with scene(fenced, LEADER) as at:
            _, binder = await partial(at)
            await at.admin.create(PODS.path(at.space), a_pod("g-2"))
            other = {"metadata": {"name": "g-2"}, "target": {"kind": "Node", "name": "n7"}}
            await at.admin.create(PODS.path(at.space, "g-2", "binding"), other)
            first, *_ = await at.finished(at.finisher(0, LEADER, binder))
            assert [release.why for release in first.released] == ["the pod g-2 was bound otherwise by others"]
            assert await pods_of(at.admin, at.space) == []

    asyncio.run(story())


def test_what_was_made_anew_and_may_not_be_where_the_plan_says_is_not_bound_there(fenced: Cluster) -> None:
    async def story() -> None:
        async with scene(fenced, LEADER) as at:
            _, binder = await partial(at)
            anew = a_pod("g-2")
            anew["spec"]["nodeSelector"] = {"zone": "elsewhere"}
            await at.admin.create(PODS.path(at.space), anew)
            first, *_ = await at.finished(at.finisher(AGAIN_S, LEADER, binder))
            assert [release.why for release in first.released] == [
                "the pod g-2 may not be on the node n2, which it was to have"
            ]
            (left,) = await pods_of(at.admin, at.space)
            assert (left.metadata.name, left.spec.node_name) == ("g-2", "")

    asyncio.run(story())


def test_what_others_made_anew_meanwhile_is_not_deleted(fenced: Cluster) -> None:
    async def story() -> None:
        async with scene(fenced, LEADER) as at:
            _, binder = await partial(at)
            before = await pods_of(at.admin, at.space)
            await at.admin.delete(PODS.path(at.space, "g-1"))
            await at.leave()
            await at.admin.create(PODS.path(at.space), a_pod("g-1"))
            await at.finisher(ROLL_FORWARD_S, LEADER, binder).finish(view_of(before), GROUND)
            await at.leave()
            (left,) = await pods_of(at.admin, at.space)
            assert (left.metadata.name, left.metadata.annotations) == ("g-1", {})

    asyncio.run(story())


def test_who_leads_no_more_finishes_nothing(fenced: Cluster) -> None:
    async def story() -> None:
        async with scene(fenced, LEADER) as at:
            await partial(at)
            before = await pods_of(at.admin, at.space)
            await led_by(fenced, OTHER)
            await at.finisher(ROLL_FORWARD_S, LEADER).finish(view_of(before), GROUND)
            assert await pods_of(at.admin, at.space) == before

    asyncio.run(story())
