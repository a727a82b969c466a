"""However many watch, what happens is read once; and none of them misses any of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from reconciler.api import event_stream
from reconciler.api.event_stream import EventFeed, StreamedEvent
from reconciler.protocols.history import Event, KeptEvent
from reconciler.store.history import SqlHistory
from tests.reconciler.api.conftest import NOW, Site


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """From behind which number events were read."""
    found: list[int] = []
    read = SqlHistory.events_since

    def keep(history: SqlHistory, number: int, subject: str = "", limit: int = 1000) -> tuple[KeptEvent, ...]:
        found.append(number)
        return read(history, number, subject, limit)

    monkeypatch.setattr(SqlHistory, "events_since", keep)
    monkeypatch.setattr(event_stream, "LOOK_EVERY_S", 0.0)
    return found


def tell(site: Site, count: int, subject: str = "n1") -> None:
    site.store.history.record_events(Event(NOW, "kind", subject, str(number), "loop") for number in range(count))


async def followed(feed: EventFeed, since: int, wanted: int, subject: str = "") -> list[int]:
    """The numbers of events that a watcher gets, from behind one, until it has as many as it wants."""
    found: list[int] = []
    for _ in range(1_000):
        if len(found) >= wanted:
            break
        told: Sequence[StreamedEvent]
        told, since = await feed.after(since, subject)
        found += [each.number for each in told]
        if not told:
            await feed.look()
    return found


def test_fifty_that_watch_cost_one_reading(site: Site, readings: list[int]) -> None:
    async def watch() -> list[list[int]]:
        feed = EventFeed(site.store.jobs, site.store.history)
        await feed.look()
        watchers = [asyncio.ensure_future(followed(feed, 0, 30)) for _ in range(50)]
        await asyncio.sleep(0)
        tell(site, 30)
        return await asyncio.gather(*watchers)

    assert asyncio.run(watch()) == [list(range(1, 31))] * 50
    assert len(readings) < 10


def test_one_that_comes_late_reads_for_itself_until_it_has_caught_up(
    site: Site, readings: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "CHUNK", 4)
    tell(site, 10)

    async def watch() -> list[list[int]]:
        feed = EventFeed(site.store.jobs, site.store.history)
        await feed.look()
        tell(site, 6)
        return list(await asyncio.gather(followed(feed, 0, 16), followed(feed, 10, 6), followed(feed, 14, 2)))

    assert asyncio.run(watch()) == [list(range(1, 17)), list(range(11, 17)), [15, 16]]
    assert readings.count(0) == 1


def test_events_that_are_kept_no_more_are_read_again(
    site: Site, readings: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "KEPT_MAX", 5)

    async def watch() -> tuple[list[int], list[int]]:
        feed = EventFeed(site.store.jobs, site.store.history)
        await feed.look()
        slow = 0
        tell(site, 12)
        quick = await followed(feed, 0, 12)
        return quick, await followed(feed, slow, 12)

    assert asyncio.run(watch()) == (list(range(1, 13)), list(range(1, 13)))
    assert readings.count(0) == 3  # the feed, and each of the two


def test_what_the_feed_sees_while_one_reads_for_itself_is_not_taken_for_read(
    site: Site, readings: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(site, 5)

    async def watch() -> list[int]:
        feed = EventFeed(site.store.jobs, site.store.history)
        await feed.look()
        read = feed._read

        def slow(since: int, subject: str) -> list[StreamedEvent]:
            monkeypatch.setattr(feed, "_read", read)
            found = read(since, subject)
            tell(site, 3)
            feed._keep(read(feed._newest, ""))
            return found

        monkeypatch.setattr(feed, "_read", slow)
        return await followed(feed, 0, 8)

    assert asyncio.run(watch()) == list(range(1, 9))
    assert readings[0] == 0


def test_those_of_one_subject_go_on_behind_others_that_are_not_for_it(site: Site, readings: list[int]) -> None:
    tell(site, 9, "n1")

    async def watch() -> list[int]:
        feed = EventFeed(site.store.jobs, site.store.history)
        await feed.look()
        watcher = asyncio.ensure_future(followed(feed, 0, 1, "n2"))
        await asyncio.sleep(0)
        tell(site, 1, "n2")
        return await watcher

    assert asyncio.run(watch()) == [10]
    assert readings.count(0) == 1
