"""What changes for those that look at the console, found out once for all of them: a stream that has nothing to tell costs nothing.

One task looks four times a second, as long as somebody listens: for events (which it reads together with `/v1/watch`), for another
pass, for how the control plane fares, and for sessions that are over.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event as Flag
from types import MappingProxyType
from typing import Final, NamedTuple

from reconciler.access.caller import Caller
from reconciler.access.rights import Rights
from reconciler.api.event_stream import EventFeed, StreamedEvent, message
from reconciler.api.payloads import LEADING
from reconciler.api.problems import NotReadyError
from reconciler.api.services import Services
from reconciler.control.control import NoPolicyError
from reconciler.web.conditions import conditions_of, is_in_order
from reconciler.web.latest_map import LatestMap, PackedMap
from reconciler.web.map_change import map_change
from solver.model.document import Document, digest
from solver.model.quantities import Instant
from solver.model.snapshot import Snapshot
from solver.model.workload import QueueName
from solver.policy.policy import Policy

STANDING_EVERY_S: Final = 2.0
"""How often it is asked how the control plane fares, and which sessions count no more: some statements for all streams."""

CHANGES_KEPT: Final = 50
"""A stream that is further behind begins anew."""

JOBS_NAMED_MAX: Final = 100
"""Jobs that one change names; of more it says only that there are."""

Owner = tuple[QueueName, str]
"""Queue and user of a job."""


class Standing(Document, frozen=True, omit_defaults=False):
    """Whether rounds are decided here (`condition` as `quorate status` has it, `message` why not), and what is out of order:
    how many conditions, and a tag of what they say.
    """

    condition: str
    message: str
    is_leading: bool
    troubles: int
    tag: str


class LastPass(Document, frozen=True, omit_defaults=False):
    """When the last pass looked, and under which revision."""

    time: Instant
    revision: str


class LiveStart(Document, frozen=True, omit_defaults=False):
    """The first message, and again where a stream fell behind: whatever is shown may be old. `server`: which process it is."""

    server: str
    standing: Standing | None
    last_pass: LastPass | None


class LiveChange(Document, frozen=True):
    """What is otherwise than before; what is left out is not. `others`: events of nodes or the policy."""

    jobs: tuple[str, ...] = ()
    more_jobs: bool = False
    others: bool = False
    last_pass: LastPass | None = None
    standing: Standing | None = None


class WholeMap(Document, frozen=True, omit_defaults=False):
    """The map is another, and has to be fetched."""

    after: str


@dataclass(slots=True)
class LiveNews:
    """What is new at one time, as it is sent: made once for all that may know of the same jobs."""

    number: int
    common: LiveChange
    jobs: Mapping[Owner, Sequence[str]]
    map: bytes = b""
    _made: dict[tuple[Owner, ...], bytes] = field(default_factory=dict)

    def message(self, rights: Rights) -> bytes:
        """What those with such rights are sent; b"": nothing."""
        owners = tuple(owner for owner in self.jobs if rights.may("see-job", *owner))
        made = self._made.get(owners)
        if made is None:
            self._made[owners] = made = self._message(owners)
        return made

    def _message(self, owners: tuple[Owner, ...]) -> bytes:
        names = sorted(name for owner in owners for name in self.jobs[owner])
        told = LiveChange(
            () if len(names) > JOBS_NAMED_MAX else tuple(names),
            len(names) > JOBS_NAMED_MAX,
            self.common.others,
            self.common.last_pass,
            self.common.standing,
        )
        return b"" if told == LiveChange() else message("change", told)


@dataclass(eq=False, slots=True)
class Listener:
    """A stream. `session`: the hash of its secret; "" where a token was shown. `over`: why that counts no more."""

    caller: Caller
    session: str
    wants_map: bool
    over: str = ""


class _Seen(NamedTuple):
    """What a look found. `standing` None, `over` empty: it was not asked for this time."""

    snapshot: Snapshot | None = None
    policy: Policy | None = None
    revision: str = ""
    map: PackedMap | None = None
    standing: Standing | None = None
    over: Mapping[str, str] = MappingProxyType({})


class LiveFeed:
    """For the streams of one event loop. `over`: which sessions count no more, and why."""

    def __init__(
        self, services: Services, latest: LatestMap, over: Callable[[Collection[str]], Mapping[str, str]]
    ) -> None:
        self.listeners = set[Listener]()
        self.number = 0
        """Of the newest change."""
        self._server = secrets.token_hex(6)
        self._services = services
        self._latest = latest
        self._sessions_over = over
        self._changes = deque[LiveNews](maxlen=CHANGES_KEPT)
        self._seen: _Seen | None = None
        self._standing: Standing | None = None
        self._asked_s = float("-inf")
        self._turn: asyncio.Future[None] | None = None
        self._following: asyncio.Task[None] | None = None

    @contextmanager
    def listening(self, listener: Listener, events: EventFeed, closing: Flag) -> Iterator[None]:
        """As long as this lasts, something is looked at."""
        self.listeners.add(listener)
        if self._following is None or self._following.done():
            self._seen, self._asked_s = None, float("-inf")
            self._following = asyncio.ensure_future(self._follow(events, closing))
        try:
            yield
        finally:
            self.listeners.discard(listener)

    async def ready(self) -> None:
        """Wait for the first look."""
        while self._seen is None and not self.is_over():
            await self.turn()

    def is_over(self) -> bool:
        """Whether nothing is looked at any more: the server stops. Raises StoreUnusableError where that is why."""
        if self._following is None or not self._following.done():
            return False
        self._following.result()
        return True

    def start(self) -> bytes:
        """The first message of a stream."""
        return message("start", LiveStart(self._server, self._standing, self._last_pass()))

    def after(self, number: int) -> list[LiveNews] | None:
        """The changes behind a number; None: some of them are kept no more."""
        if number + CHANGES_KEPT < self.number:
            return None
        return [change for change in self._changes if change.number > number]

    async def turn(self) -> None:
        """Wait until there is something new, or a stream may have to end."""
        if self._turn is None:
            self._turn = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._turn)

    async def _follow(self, events: EventFeed, closing: Flag) -> None:
        """Until nobody listens. What is new meanwhile is told by the first message of the next stream."""
        try:
            since = await asyncio.to_thread(self._services.history.newest_event)
            while self.listeners and not closing.is_set():
                told, since = await events.after(since, "")
                before, seen = self._seen, await asyncio.to_thread(self._look, self._is_due())
                # In a thread, too: of a large cluster that takes a tenth of a second.
                map_message = await asyncio.to_thread(_changed_map, before and before.map, seen.map)
                self._seen = seen
                self._tell(before, seen, told, map_message)
                if not told:
                    await events.look()
        finally:
            self._wake()

    def _is_due(self) -> bool:
        now_s = asyncio.get_running_loop().time()
        if now_s < self._asked_s + STANDING_EVERY_S:
            return False
        self._asked_s = now_s
        return True

    def _look(self, is_due: bool) -> _Seen:
        found = self._look_at_pass()
        if not is_due:
            return found
        sessions = {each.session for each in self.listeners.copy() if each.session}
        return found._replace(standing=_standing(self._services), over=self._sessions_over(sessions))

    def _look_at_pass(self) -> _Seen:
        try:
            snapshot, (revision, policy) = self._services.snapshot(), self._services.policy()
        except (NotReadyError, NoPolicyError):
            return _Seen()  # Before the first round, and on a server that stands by: how it stands says which.
        # Nobody may look at the map: then it is not made.
        packed = self._latest.now() if any(each.wants_map for each in self.listeners.copy()) else None
        return _Seen(snapshot, policy, revision, packed)

    def _tell(self, before: _Seen | None, seen: _Seen, told: Iterable[StreamedEvent], map_message: bytes) -> None:
        jobs, others = _by_owner(told)
        standing = None if seen.standing in (None, self._standing) else seen.standing
        self._standing = standing or self._standing
        if before is None:
            self._wake()
            return
        is_other = seen.snapshot is not before.snapshot or seen.policy is not before.policy
        common = LiveChange(others=others, last_pass=self._last_pass() if is_other else None, standing=standing)
        is_news = bool(jobs or map_message or common != LiveChange())
        if is_news:
            self.number += 1
            self._changes.append(LiveNews(self.number, common, jobs, map_message))
        if self._end_some(seen) or is_news or is_other:
            self._wake()

    def _end_some(self, seen: _Seen) -> bool:
        """Whether a stream has to end since nobody is known any more by what it was asked for with."""
        now = self._services.wall.now()
        for listener in self.listeners:
            until = listener.caller.until
            if listener.session in seen.over:
                listener.over = seen.over[listener.session]
            elif not listener.session and until is not None and until <= now:
                listener.over = "your token has expired"
        return any(each.over for each in self.listeners)

    def _last_pass(self) -> LastPass | None:
        seen = self._seen
        return None if seen is None or seen.snapshot is None else LastPass(seen.snapshot.time, seen.revision)

    def _wake(self) -> None:
        turn, self._turn = self._turn, None
        if turn is not None and not turn.done():
            turn.set_result(None)


def _by_owner(told: Iterable[StreamedEvent]) -> tuple[dict[Owner, list[str]], bool]:
    """Jobs that something happened to, and whether something happened to anything else."""
    jobs, others = dict[Owner, list[str]](), False
    for event in told:
        if event.owner is None:
            others = True
        elif event.subject not in (known := jobs.setdefault(event.owner, [])):
            known.append(event.subject)
    return jobs, others


def _changed_map(before: PackedMap | None, now: PackedMap | None) -> bytes:
    """Of one that was not looked at before, only which it is: a pass may have come since it was fetched."""
    if now is None or (before is not None and now.tag == before.tag):
        return b""
    change = before and map_change(before.columns, now.columns, (before.tag, now.tag))
    return message("map", WholeMap(now.tag) if change is None else change)


def _standing(services: Services) -> Standing:
    found = conditions_of(services)
    leading = next((each for each in found if each.type == LEADING), None)
    wrong = [each for each in found if not is_in_order(each)]
    return Standing(
        leading.reason if leading else "",
        leading.message if leading else "",
        leading is None or leading.status,
        len(wrong),
        digest(tuple(wrong)),
    )
