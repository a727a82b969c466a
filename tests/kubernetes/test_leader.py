"""Elections on a real API server: one leader at a time, whoever stops, is cut off or comes back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import structlog

from hack.kubernetes.cluster import Cluster
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.leader import Election, NoNamespaceError, Timing
from reconciler.kubernetes.client.refusals import NotAllowedError
from reconciler.kubernetes.objects.resource import LEASES
from reconciler.model.clock import SystemClock
from reconciler.protocols.ledger import NotLeaderError
from tests.kubernetes.proxied import cuttable
from tests.kubernetes.sessions import REAL, a_namespace, session, until

pytestmark = REAL

LONG = Timing(lease_s=600, renew_every_s=0.05, margin_s=5, settle_s=0.05)
"""Nobody waits so long in a test: clocks are moved by hand."""


class Watch(SystemClock):
    """One candidate's own clock."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.ahead_s


class Candidate:
    """An election as it runs; `stopped` while it does nothing, as a process does that was paused."""

    def __init__(self, api: Api, holder: str, path: str, timing: Timing = LONG) -> None:
        self.clock = Watch()
        self.going = asyncio.Event()
        self.going.set()
        self.rests = self.begun = 0
        self.held = False
        log = structlog.get_logger()
        self.election = Election(api, holder, self.clock, log, timing, path, self._rest, self._begins)
        self.task = asyncio.create_task(self.election.run())

    async def _rest(self, seconds: float) -> None:
        self.rests += 1
        await asyncio.sleep(seconds)
        self.held = not self.going.is_set()
        await self.going.wait()
        self.held = False

    async def hold(self) -> None:
        """It does nothing more, and what was under way is answered."""
        self.going.clear()
        await until(lambda: self.held)

    def _begins(self) -> None:
        assert self.leads
        self.begun += 1

    @property
    def leads(self) -> bool:
        try:
            self.election.leadership()
        except NotLeaderError:
            return False
        return True

    async def rested(self, times: int = 3) -> None:
        """It has looked at the Lease as it is now."""
        seen = self.rests
        await until(lambda: self.rests >= seen + times)

    async def stop(self) -> None:
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task


@asynccontextmanager
async def candidates(api: Api, *holders: str) -> AsyncIterator[tuple[str, list[Candidate]]]:
    path = LEASES.path(await a_namespace(api), "quorate")
    running = [Candidate(api, holder, path) for holder in holders]
    try:
        yield path, running
    finally:
        for candidate in running:
            candidate.going.set()
            await candidate.stop()


async def spec(api: Api, path: str) -> dict[str, Any]:
    found: dict[str, Any] = (await api.get(path, dict[str, Any]))["spec"]
    return found


def test_one_of_many_leads_and_the_next_as_soon_as_it_resigns(cluster: Cluster) -> None:
    async def story() -> None:
        async with session(cluster) as api, candidates(api, *"abcde") as (path, running):
            epochs = []
            while running:
                await until(lambda: any(one.leads for one in running))
                for one in running:
                    await one.rested()
                (leader,) = (one for one in running if one.leads)
                lead = leader.election.leadership()
                assert lead == (await leader.election.elected())._replace(until_s=lead.until_s)
                written = await spec(api, path)
                assert (written["holderIdentity"], written["leaseTransitions"]) == (lead.holder, lead.epoch)
                epochs.append(lead.epoch)
                assert [one.begun for one in running] == [int(one is leader) for one in running]
                await leader.stop()
                assert not leader.leads
                running.remove(leader)
            assert epochs == [1, 2, 3, 4, 5]
            assert await spec(api, path) == {**await spec(api, path), "holderIdentity": "", "leaseDurationSeconds": 1}

    asyncio.run(story())


def test_a_leader_renews_and_may_write_until_a_margin_before_the_end(cluster: Cluster) -> None:
    async def story() -> None:
        async with session(cluster) as api, candidates(api, "a") as (path, (a,)):
            first = await a.election.elected()
            before = await spec(api, path)
            await a.rested()
            later, after = a.election.leadership(), await spec(api, path)
            assert before["renewTime"] < after["renewTime"]
            assert before["acquireTime"] == after["acquireTime"]
            assert (later.epoch, later.until_s > first.until_s) == (first.epoch, True)
            await a.hold()
            left_s = a.election.leadership().until_s - a.clock.monotonic_s()
            assert 0 < left_s <= LONG.lease_s - LONG.margin_s
            a.clock.ahead_s += left_s
            with pytest.raises(NotLeaderError, match="a leads until"):
                a.election.leadership()

    asyncio.run(story())


def test_a_renewal_counts_from_before_it_was_sent(cluster: Cluster) -> None:
    class Slow(Api):
        """Time passes while a request is under way."""

        def held_up(self, clock: Watch) -> None:
            self.clock = clock

        async def patch(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
            sent_s.append(self.clock.monotonic_s())
            self.clock.ahead_s += 60
            return await super().patch(*args, **kwargs)

    sent_s: list[float] = []

    async def story() -> None:
        async with session(cluster) as api, session(cluster, kind=Slow) as slow:
            path = LEASES.path(await a_namespace(api), "quorate")
            a = Candidate(slow, "a", path)
            assert isinstance(slow, Slow)
            slow.held_up(a.clock)
            await until(lambda: len(sent_s) > 2)
            await a.hold()
            lead = a.election.leadership()
            assert lead.until_s - (LONG.lease_s - LONG.margin_s) == pytest.approx(sent_s[-1], abs=1.0)
            a.going.set()
            await a.stop()

    asyncio.run(story())


def test_a_holder_that_is_silent_is_followed_once_a_lease_has_gone_by_on_the_others_clock(cluster: Cluster) -> None:
    async def story() -> None:
        async with session(cluster) as api, candidates(api, "a") as (path, running):
            (a,) = running
            epoch = (await a.election.elected()).epoch
            await a.hold()
            # What others write as time is not believed: it says that the lease ended long ago.
            await api.patch(path, {"spec": {"renewTime": "2001-01-01T00:00:00.000000Z"}})
            b = Candidate(api, "b", path)
            running.append(b)
            await b.rested()
            b.clock.ahead_s += LONG.lease_s - 10
            await b.rested()
            assert (a.leads, b.leads) == (True, False)
            await api.patch(path, {"spec": {"renewTime": "2001-01-01T00:00:01.000000Z"}})
            await b.rested()
            b.clock.ahead_s += LONG.lease_s - 10
            await b.rested()
            assert not b.leads, "the record has changed since"
            b.clock.ahead_s += 10
            assert (await b.election.elected()).epoch == epoch + 1
            a.clock.ahead_s += LONG.lease_s - LONG.margin_s
            assert not a.leads, "it knows by itself that its time is over"
            a.going.set()
            await a.rested()
            assert (a.leads, b.leads) == (False, True)
            with pytest.raises(NotLeaderError, match="b leads"):
                a.election.leadership()

    asyncio.run(story())


def test_a_predecessor_of_the_same_name_is_somebody_else(cluster: Cluster) -> None:
    async def story() -> None:
        async with session(cluster) as api, candidates(api, "a") as (path, running):
            (a,) = running
            epoch = (await a.election.elected()).epoch
            await a.hold()
            again = Candidate(api, "a", path)
            running.append(again)
            await again.rested()
            assert not again.leads
            again.clock.ahead_s += LONG.lease_s
            assert (await again.election.elected()).epoch == epoch + 1
            a.going.set()
            await a.rested()
            assert not a.leads

    asyncio.run(story())


def test_who_does_not_reach_the_server_stops_writing_in_time(cluster: Cluster) -> None:
    async def story() -> None:
        async with session(cluster) as api, cuttable(cluster) as way:
            path = LEASES.path(await a_namespace(api), "quorate")
            async with session(cluster, kubeconfig=way.kubeconfig, sleep=lambda _: asyncio.sleep(0)) as through:
                a = Candidate(through, "a", path)
                await a.election.elected()
                way.refuse()
                await a.rested()
                last = a.election.leadership()
                await asyncio.sleep(0.3)
                assert a.election.leadership() == last
                a.clock.ahead_s += last.until_s - a.clock.monotonic_s()
                assert not a.leads
                a.task.cancel()
                with suppress(asyncio.CancelledError):
                    await a.task

    asyncio.run(story())


def test_a_lease_that_was_deleted_is_lost_and_epochs_go_on(cluster: Cluster) -> None:
    async def story() -> None:
        async with session(cluster) as api, candidates(api, "a", "b") as (path, running):
            await until(lambda: any(one.leads for one in running))
            (leader,) = (one for one in running if one.leads)
            epoch = leader.election.leadership().epoch
            for one in running:
                await one.rested()
            await api.delete(path)
            await until(lambda: not leader.leads)
            for one in running:
                await one.rested()
            assert not any(one.leads for one in running), "whoever had it may not know that it is gone"
            for one in running:
                one.clock.ahead_s += LONG.lease_s
            await until(lambda: any(one.leads for one in running))
            (leader,) = (one for one in running if one.leads)
            assert leader.election.leadership().epoch > epoch

    asyncio.run(story())


class Refused(Api):
    """A server that does not know for a while who asks, or what that one may do."""

    refuses = False

    async def get(self, path: str, *args: Any) -> Any:
        self._judge(path)
        return await super().get(path, *args)

    async def patch(self, path: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
        self._judge(path)
        return await super().patch(path, *args, **kwargs)

    def _judge(self, path: str) -> None:
        if self.refuses:
            raise NotAllowedError(path, 401, "Unauthorized", "Unauthorized")


def test_who_is_refused_the_lease_for_a_while_goes_on_afterwards(cluster: Cluster) -> None:
    async def story() -> None:
        async with session(cluster, kind=Refused) as api, candidates(api, "a") as (_, (a,)):
            assert isinstance(api, Refused)
            epoch = (await a.election.elected()).epoch
            api.refuses = True
            await a.rested(3)
            assert a.leads, "for as long as the lease is its own"
            a.clock.ahead_s += LONG.lease_s
            assert not a.leads
            api.refuses = False
            await until(lambda: a.leads)
            assert a.election.leadership().epoch == epoch

    asyncio.run(story())


def test_who_was_never_let_near_the_lease_says_so(cluster: Cluster) -> None:
    async def story() -> None:
        async with session(cluster, kind=Refused) as api, session(cluster) as open_api:
            assert isinstance(api, Refused)
            api.refuses = True
            path = LEASES.path(await a_namespace(open_api), "quorate")
            with pytest.raises(NotAllowedError):
                await Candidate(api, "a", path).task
            with pytest.raises(NoNamespaceError, match='namespaces "nowhere" not found'):
                await Candidate(open_api, "a", LEASES.path("nowhere", "quorate")).task

    asyncio.run(story())


def test_others_labels_on_the_lease_stay(cluster: Cluster) -> None:
    async def story() -> None:
        async with session(cluster) as api, candidates(api, "a") as (path, (a,)):
            await a.election.elected()
            await api.patch(path, {"metadata": {"labels": {"mine": "yes"}}})
            await a.rested(5)
            assert a.leads
            assert (await api.get(path, dict[str, Any]))["metadata"]["labels"] == {"mine": "yes"}

    asyncio.run(story())
