"""The client's end of a terminal: bytes both ways, over a WebSocket."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final, Literal
from urllib.parse import urlencode, urlsplit

from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from reconciler.api.attach_payloads import MESSAGE_BYTES_MAX, Detached, WindowSize
from reconciler.client.transport import LOOPBACK, ServerUnreachableError, Transport, error_of
from solver.model.document import decode, encode

_OPEN_LIMIT_S: Final = 30.0
_CLOSE_LIMIT_S: Final = 2.0


@contextmanager
def attachment(transport: Transport, path: str, params: dict[str, Any]) -> Iterator[Attachment]:
    """Attach, and let go in the end. Raises ServerUnreachableError, NotAuthorisedError, ApiError."""
    url = urlsplit(transport.server)
    where = url._replace(
        scheme="wss" if url.scheme == "https" else "ws", path=url.path + path, query=urlencode(params)
    ).geturl()
    # A proxy of the environment can't reach our own machine.
    proxy: Literal[True] | None = None if url.hostname in LOOPBACK else True
    headers = {"Authorization": f"Bearer {transport.token}"} if transport.token else {}
    with ExitStack() as closing:
        try:
            opening = connect(
                where, additional_headers=headers, proxy=proxy, open_timeout=_OPEN_LIMIT_S, close_timeout=_CLOSE_LIMIT_S
            )
            connection = closing.enter_context(opening)
        except InvalidStatus as error:
            raise error_of(error.response.status_code, bytes(error.response.body or b""), where) from error
        except (OSError, InvalidHandshake) as error:
            raise transport.unreachable(error) from error
        yield Attachment(connection)


class Attachment:
    """Attached to the terminal of a task. One thread may read while another one sends."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self.detached: Detached | None = None
        """Why `shown` ended; None while it has not, and where the connection broke."""

    def shown(self) -> Iterator[bytes]:
        """What the terminal shows, first the end of what it showed before. `detached` says how it came to an end."""
        try:
            for message in self._connection:
                if isinstance(message, str):
                    self.detached = decode(message, Detached)
                    return
                yield message
        except ConnectionClosed:
            return

    def type(self, typed: bytes) -> None:
        """Type it. Raises ServerUnreachableError."""
        for start in range(0, len(typed), MESSAGE_BYTES_MAX):
            self._send(typed[start : start + MESSAGE_BYTES_MAX])

    def resize(self, rows: int, columns: int) -> None:
        """Say how large the window is. Raises ServerUnreachableError."""
        self._send(encode(WindowSize(rows, columns)).decode())

    def close(self) -> None:
        """Let go. The task does not notice."""
        self._connection.close()

    def _send(self, message: bytes | str) -> None:
        try:
            self._connection.send(message)
        except ConnectionClosed as error:
            raise ServerUnreachableError("the connection to the terminal was lost") from error
