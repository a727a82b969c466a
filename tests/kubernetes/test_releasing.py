"""Gangs that are given up: cut off, overtaken or disturbed, all of their pods go, and by the hand of who leads."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hack.kubernetes.cluster import Cluster
from reconciler.kubernetes.binder.partial_starts import ROLL_FORWARD_S
from reconciler.kubernetes.client.api import Api, Check
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.pod_view import view_of
from tests.kubernetes.candidate import Mortal
from tests.kubernetes.fencing import as_quorate, led_by
from tests.kubernetes.sessions import REAL
from tests.kubernetes.test_binding import LEADER, OTHER
from tests.kubernetes.test_start_recovery import GROUND, partial, pods_of, scene

pytestmark = REAL


class Killed(BaseException):
    """As kill -9, within one process."""


class Killable(Mortal):
    """Gone at a step, as in the other process."""

    def _die(self) -> None:
        raise Killed


RELEASE_STEPS = 12
"""Three patches and three deletes, each of two steps."""


@pytest.mark.parametrize("step", range(1, RELEASE_STEPS + 1))
def test_a_release_that_is_cut_off_at_any_step_is_finished_by_the_next(fenced: Cluster, step: int) -> None:
    async def story() -> None:
        async with scene(fenced, LEADER) as at, as_quorate(fenced, Killable) as killable:
            assert isinstance(killable, Killable)
            killable.dies_at = step
            await partial(at)
            with pytest.raises((Killed, BaseExceptionGroup)):
                await (
                    at._replace(api=killable)
                    .finisher(ROLL_FORWARD_S, LEADER)
                    .finish(view_of(await pods_of(at.admin, at.space)), GROUND)
                )
            await led_by(fenced, OTHER)
            # In good time, had it not been begun: what is marked is not bound again.
            by_s = 0 if step > RELEASE_STEPS // 2 else ROLL_FORWARD_S
            await at.leave()
            await at.finished(at.finisher(by_s))
            assert await pods_of(at.admin, at.space) == []

    asyncio.run(story())


class Overtaken(Api):
    """Before any of its deletions leaves, another comes to lead; its own clock has not noticed."""

    cluster: Cluster
    deletions = 0
    _taking_over: asyncio.Task[None] | None = None

    async def delete(self, path: str, body: object = None, check: Check | None = None) -> dict[str, Any]:
        self.deletions += 1
        self._taking_over = self._taking_over or asyncio.create_task(led_by(self.cluster, OTHER))
        await self._taking_over
        return await super().delete(path, body, check)


def test_who_was_overtaken_after_it_marked_what_it_releases_deletes_nothing(fenced: Cluster) -> None:
    async def story() -> None:
        async with scene(fenced, LEADER) as at, as_quorate(fenced, Overtaken) as overtaken:
            assert isinstance(overtaken, Overtaken)
            overtaken.cluster = fenced
            await partial(at)
            stale = at._replace(api=overtaken).finisher(ROLL_FORWARD_S, LEADER)
            await stale.finish(view_of(await pods_of(at.admin, at.space)), GROUND)
            left = await pods_of(at.admin, at.space)
            assert overtaken.deletions == 3
            assert [pod.metadata.name for pod in left if not pod.metadata.deletion_timestamp] == ["g-0", "g-1", "g-3"]
            assert all(names.RELEASE in pod.metadata.annotations for pod in left)
            await at.finished(at.finisher(0))
            assert await pods_of(at.admin, at.space) == []

    asyncio.run(story())


class Interrupted(Api):
    """Before each of its first deletions somebody writes to the pod, as kubelets and people do."""

    admin: Api
    left = 3

    async def delete(self, path: str, body: object = None, check: Check | None = None) -> dict[str, Any]:
        if self.left:
            self.left -= 1
            await self.admin.patch(path, {"metadata": {"labels": {"touched": str(self.left)}}})
        return await super().delete(path, body, check)


def test_what_others_write_to_meanwhile_is_released_all_the_same(fenced: Cluster) -> None:
    async def story() -> None:
        async with scene(fenced, LEADER) as at, as_quorate(fenced, Interrupted) as interrupted:
            assert isinstance(interrupted, Interrupted)
            interrupted.admin = at.admin
            await partial(at)
            finisher = at._replace(api=interrupted).finisher(ROLL_FORWARD_S, LEADER)
            await finisher.finish(view_of(await pods_of(at.admin, at.space)), GROUND)
            await at.leave()
            assert (interrupted.left, await pods_of(at.admin, at.space)) == (0, [])

    asyncio.run(story())
