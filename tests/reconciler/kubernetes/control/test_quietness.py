"""Where nothing has changed no pass is taken; whatever changes, the next one is, and time alone is never waited for too long."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from reconciler.analysis.backtest.observed_files import ObservedFiles
from reconciler.control.control import Solved
from reconciler.control.quietness import REST_PER_PASS, REST_S_MAX
from reconciler.control.runner import LoopStatus, Pace
from reconciler.kubernetes.control.actuator import KubernetesActuator
from reconciler.kubernetes.control.observer import Observer
from reconciler.kubernetes.control.plane import PodPlane
from reconciler.kubernetes.control.quietness import PodQuietness
from reconciler.kubernetes.control.runner import PodRunner
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.pod_ownership import OURS
from reconciler.kubernetes.objects.resource import PODS
from reconciler.kubernetes.status.conditions import GATHERS
from reconciler.protocols.history import Event
from solver.model.snapshot import Snapshot
from solver.policy.policy import Policy
from tests.reconciler.kubernetes.control.followed import NOW, Followed, Ticking, a_node, a_running, a_waiting, followed
from tests.reconciler.kubernetes.samples import Sent

FULL = a_node(1), a_running("runs", "n001"), a_waiting("waits")
"""A node, a pod that has all of it, and one that waits for it."""
Story = Callable[[Followed], Coroutine[Any, Any, None]]


def told(folder: Path, story: Story, *objects: Sent) -> None:
    async def with_objects() -> None:
        async with followed(folder, *(objects or FULL)) as world:
            await story(world)

    asyncio.run(with_objects())


def acting(world: Followed, **hands: Any) -> PodQuietness:
    """As where it acts, with nothing that its binder remembers."""
    there = SimpleNamespace(binder=SimpleNamespace(**{"remembered": (), **hands}))
    return PodQuietness(replace(world.plane, hands=cast("KubernetesActuator", there)))


def test_where_nothing_changes_one_look_is_enough(tmp_path: Path) -> None:
    async def story(world: Followed) -> None:
        world.quietness = acting(world)
        await world.quiet()
        rounds = len(world.solve.snapshots)
        for _ in range(int(REST_PER_PASS) - 1):
            world.clock.advance(900)
            assert world.quietness.holds()
        assert len(world.solve.snapshots) == rounds

    told(tmp_path, story)


CHANGES: dict[str, Callable[[Followed], object]] = {
    "a policy": lambda world: setattr(world.policies, "in_force", world.policies.in_force._replace(revision="b" * 40)),
    "why a newer policy is not in force": lambda world: setattr(world, "stalled", "it is not signed"),
    "what is written to the store": lambda world: world.store.history.record_event(
        Event(world.clock.now(), "kind", "n1", "why", "another")
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_no_watch_tells_is_seen_by_the_next_look(change: str, tmp_path: Path) -> None:
    async def story(world: Followed) -> None:
        await world.quiet()
        CHANGES[change](world)
        assert not world.quietness.holds()

    told(tmp_path, story)


def test_time_alone_is_waited_for_no_longer_than_so(tmp_path: Path) -> None:
    async def story(world: Followed) -> None:
        await world.quiet()
        world.clock.advance(REST_PER_PASS * 1_000)
        assert not world.quietness.holds()
        await world.taken(pass_s=10.0)
        world.clock.advance(int(REST_S_MAX * 1_000) - 1)
        assert world.quietness.holds()
        world.clock.advance(1)
        assert not world.quietness.holds()

    told(tmp_path, story)


GANG = {names.GANG: "g", names.GANG_SIZE: "2"}
LIMITED = {names.TIME_LIMIT: "1h0m9s"}


def test_a_time_limit_is_not_slept_over(tmp_path: Path) -> None:
    """It began a minute after eight, and it is nine."""

    async def story(world: Followed) -> None:
        world.clock.advance(60_000)
        await world.quiet()
        world.clock.advance(6_000)
        assert world.quietness.holds()
        world.clock.advance(2_000)
        assert not world.quietness.holds()

    told(tmp_path, story, a_node(1), a_running("ends", "n001", annotations=LIMITED))


def test_a_start_that_takes_too_long_is_not_slept_over(tmp_path: Path) -> None:
    async def story(world: Followed) -> None:
        _, sight = await world.taken()
        (intent,) = sight.intents
        assert intent.kind == "start"
        world.clock.advance(int(intent.deadline - world.clock.now()) - 5_000)
        await world.quiet()
        world.clock.advance(int(intent.deadline - world.clock.now()) - 1)
        assert world.quietness.holds()
        world.clock.advance(1)
        assert not world.quietness.holds()

    bound = {"conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-20T08:59:59Z"}]}
    told(tmp_path, story, a_node(1), a_waiting("begins", on="n001", phase="Pending", status=bound))


def test_a_gang_that_may_be_gathering_is_looked_at_once_it_should_have(tmp_path: Path) -> None:
    async def story(world: Followed) -> None:
        await world.taken(pass_s=0.1)
        await world.taken(pass_s=2.0)
        assert world.quietness.holds()
        world.clock.advance(GATHERS - 2_101)
        assert world.quietness.holds()
        world.clock.advance(1)
        assert not world.quietness.holds()

    told(tmp_path, story, a_node(1), a_waiting("one", annotations=GANG, created="2026-11-20T09:00:00Z"))


def test_what_was_begun_is_gone_on_with(tmp_path: Path) -> None:
    async def story(world: Followed) -> None:
        world.quietness = acting(world)
        await world.quiet()
        there = world.objects.there(PODS)["vision", "runs"]
        meta = {**there["metadata"], "annotations": {names.RELEASE: "a mark"}}
        world.objects.put(PODS, {**there, "metadata": meta})
        await world.caught_up()
        for _ in range(3):
            done, _ = await world.taken()
            assert not done.plan.steps
            assert not world.quietness.holds()
        world.objects.put(PODS, there)
        await world.caught_up()
        await world.quiet()
        world.quietness = acting(world, remembered=("a start",))
        for _ in range(3):
            await world.taken()
            assert not world.quietness.holds()

    told(tmp_path, story)


def test_what_a_pass_has_done_is_followed_by_another(tmp_path: Path) -> None:
    async def story(world: Followed) -> None:
        await world.quiet()
        done, sight = await world.taken()
        for did in (
            replace(done, settled=1),
            replace(done, refused=1),
            replace(done, fault="x"),
            replace(done, round=7),
        ):
            world.quietness.begin()
            world.quietness.end(did, sight)
            assert not world.quietness.holds()

    told(tmp_path, story)


def test_a_plan_that_does_something_is_followed_by_another_round(tmp_path: Path) -> None:
    async def story(world: Followed) -> None:
        world.quietness = acting(world)
        for _ in range(3):
            done, _ = await world.taken()
            assert done.plan.steps
            assert not world.quietness.holds()

    told(tmp_path, story, a_node(1), a_waiting("starts"))


def test_a_loop_that_only_looks_rests_though_its_plans_would_do_something(tmp_path: Path) -> None:
    async def story(world: Followed) -> None:
        files = ObservedFiles(tmp_path / "history", tmp_path / "nodes")
        handed = world.plane.handed
        observer = Observer(OURS, files, handed.memory, handed.clock, handed.log)
        world.plane = replace(world.plane, observer=observer)
        world.quietness = PodQuietness(world.plane)
        await world.quiet()
        done, _ = await world.taken()
        assert done.plan.steps

    told(tmp_path, story, a_node(1), a_waiting("starts"))


def test_the_loop_decides_a_round_for_what_watches_tell_and_none_for_its_polls(tmp_path: Path) -> None:
    """One more follows each that said something new, and finds that nothing is left to do."""
    reports: list[LoopStatus] = []

    async def story(world: Followed) -> None:
        looks = itertools.count(1)

        def asked() -> None:
            look = next(looks)
            if look == 100:
                world.objects.put(PODS, a_waiting("late"))
            if look == 200:
                runner.stop()

        def solve(snapshot: Snapshot, policy: Policy) -> Solved:
            world.clock.advance(1_000)
            return world.solve(snapshot, policy)

        @asynccontextmanager
        async def connected() -> AsyncIterator[PodPlane]:
            yield replace(world.plane, handed=replace(world.plane.handed, solve=solve))

        world.policies.asked = asked
        runner = PodRunner(connected, world.clock, reports.append, Pace(debounce_s=0.0, apart_s=0.0, poll_s=0.005))
        await runner._run()
        assert [len(snapshot.jobs) for snapshot in world.solve.snapshots] == [2, 2, 3, 3]

    async def with_objects() -> None:
        async with followed(tmp_path, *FULL, clock=Ticking(NOW)) as world:
            await story(world)

    asyncio.run(with_objects())
    assert [status.condition for status in reports] == ["observing"] * 4
