"""What happens, read once for all that watch: their number costs the store nothing."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import cached_property
from typing import Final

from reconciler.access.rights import Rights
from reconciler.api.redaction import bare_event
from reconciler.model.job_record import JobRecord
from reconciler.protocols.history import History, KeptEvent
from reconciler.protocols.job_source import JobSource
from solver.model.document import encode
from solver.model.workload import JobName

LOOK_EVERY_S: Final = 0.25
CHUNK: Final = 500
KEPT_MAX: Final = 2_000
"""Events that are kept for those that take them late; one that comes later reads for itself."""

STALE_S: Final = 5.0
"""Nothing watched for so long: what happened meanwhile is read by those that want it."""


class StreamedEvent:
    """An event as it is sent, in its two forms: both are made at most once, however many watch."""

    def __init__(self, kept: KeptEvent, record: JobRecord | None) -> None:
        """`record`: of the job that it is about; None: of a node or a revision."""
        self.number = kept.number
        self.subject = kept.event.subject
        self._event = kept.event
        self.owner = None if record is None else (record.spec.queue, record.user)
        """Queue and user of its job."""

    def message(self, rights: Rights) -> bytes | None:
        """What a caller with these rights is sent; None: nothing."""
        if self.owner is None or rights.may("read-job", *self.owner):
            return self._whole
        return self._bare if rights.may("see-job", *self.owner) else None

    @cached_property
    def _whole(self) -> bytes:
        return message("event", self._event, self.number)

    @cached_property
    def _bare(self) -> bytes:
        return message("event", bare_event(self._event), self.number)


class EventFeed:
    """For the watchers of one event loop. Its methods raise StoreUnusableError."""

    def __init__(self, jobs: JobSource, history: History) -> None:
        self._jobs = jobs
        self._history = history
        self._lately: deque[StreamedEvent] = deque(maxlen=KEPT_MAX)
        self._begun = self._newest = 0
        """What is kept is all that there is behind the first number and up to the second."""
        self._looked_s = float("-inf")
        self._is_behind = False
        self._looking: asyncio.Task[None] | None = None

    async def look(self) -> None:
        """Wait for the next look at what is new, which all that wait share."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._look())
        await asyncio.shield(self._looking)

    async def after(self, since: int, subject: str) -> tuple[Sequence[StreamedEvent], int]:
        """The oldest events behind a number, of a subject or ("") of all, and up to which number there are no others."""
        if since >= self._begun:
            # Those of a watcher that keeps up are the last ones.
            new: list[StreamedEvent] = []
            for told in reversed(self._lately):
                if told.number <= since:
                    break
                if not subject or told.subject == subject:
                    new.append(told)
            return new[::-1], max(since, self._newest)
        newest = self._newest
        found = await asyncio.to_thread(self._read, since, subject)
        if len(found) == CHUNK:
            return found, found[-1].number
        # What was known before this reading began was there for it.
        return found, max(newest, found[-1].number if found else since)

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        if not self._is_behind:
            await asyncio.sleep(self._looked_s + LOOK_EVERY_S - loop.time())
        if loop.time() - self._looked_s > STALE_S:
            self._lately.clear()
            self._begun = self._newest = await asyncio.to_thread(self._history.newest_event)
        else:
            self._keep(await asyncio.to_thread(self._read, self._newest, ""))
        self._looked_s = loop.time()

    def _keep(self, found: Sequence[StreamedEvent]) -> None:
        self._is_behind = len(found) == CHUNK
        self._lately.extend(found)
        if found:
            self._newest = found[-1].number
        if len(self._lately) == KEPT_MAX:
            self._begun = self._lately[0].number

    def _read(self, since: int, subject: str) -> list[StreamedEvent]:
        kept = self._history.events_since(since, subject, CHUNK)
        records = self._jobs.named({JobName(each.event.subject) for each in kept})
        return [StreamedEvent(each, records.get(JobName(each.event.subject))) for each in kept]


def message(kind: str, document: object, number: int | None = None) -> bytes:
    """One server-sent event; JSON has no line breaks, so one `data:` line holds it."""
    identity = b"" if number is None else b"id: %d\n" % number
    return identity + b"event: " + kind.encode() + b"\ndata: " + encode(document) + b"\n\n"
