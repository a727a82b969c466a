"""Events of a server as they happen: a stream that is taken up again where it broke off."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from reconciler.client.transport import ServerUnreachableError, SilentError, Transport
from reconciler.protocols.history import Event, KeptEvent
from solver.model.document import decode

FAILURES_MAX: Final = 6
"""In a row, with nothing heard between them; with the pauses some six seconds."""

_PAUSE_S: Final = 0.1
_SILENCE_S: Final = 45.0
"""Three times the server's own signs of life."""


class Watching:
    """One stream, whatever connections it takes. Iterate `events`, or `signs` to hear of silence as well."""

    def __init__(
        self, transport: Transport, subject: str = "", after: int | None = None, silence_s: float = _SILENCE_S
    ) -> None:
        self._transport = transport
        self._subject = subject
        self._silence_s = silence_s
        self.last = after
        """The number of the newest event heard of; None before the server has said where it begins."""

    def events(self) -> Iterator[KeptEvent]:
        """Events, none twice and none left out. Raises ServerUnreachableError, NotAuthorisedError, ApiError."""
        return (sign for sign in self.signs() if sign is not None)

    def signs(self) -> Iterator[KeptEvent | None]:
        """The same, and None each time the server is heard of without news, or not heard of for `silence_s`."""
        failures = 0
        while True:
            try:
                for sign in self._connection():
                    failures = 0
                    yield sign
                failures += 1
            except SilentError:
                yield None
                failures += 1
            except ServerUnreachableError:
                failures += 1
                if failures == FAILURES_MAX:
                    raise
            # A server that stops, or restarts, is asked again, ever less often.
            time.sleep(_PAUSE_S * 2 ** min(failures, FAILURES_MAX) if failures else 0.0)

    def _connection(self) -> Iterator[KeptEvent | None]:
        headers = {} if self.last is None else {"Last-Event-ID": str(self.last)}
        params = {"subject": self._subject} if self._subject else {}
        with self._transport.lines("/v1/watch", params, headers, self._silence_s) as lines:
            number, kind = None, ""
            for line in lines:
                field, _, value = line.partition(": ")
                if field == "id":
                    number = int(value)
                elif field == "event":
                    kind = value
                elif field == "data" and kind == "event" and number is not None:
                    self.last = number
                    yield KeptEvent(number, decode(value, Event))
                elif field == "data" and kind == "start":
                    self.last = number
                    yield None
                elif line.startswith(":"):
                    yield None
