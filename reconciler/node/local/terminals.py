"""Attaches to the terminal of a task of this machine, over the socket of its supervisor."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from pathlib import Path
from typing import Final

from reconciler.protocols.terminals import NoTerminalError, TerminalEnd, Window
from reconciler.supervisor.taskfiles import TERMINAL
from reconciler.supervisor.terminal import ENDED, MESSAGE_BYTES_MAX, SHOWN, WINDOW

_CONNECT_LIMIT_S: Final = 5.0


class LocalLine:
    """Implements TerminalLine. It is opened by any thread, and used from one event loop."""

    def __init__(self, folder: Path, task: str) -> None:
        """`task` as messages name it. Raises NoTerminalError where no supervisor listens."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._socket.settimeout(_CONNECT_LIMIT_S)
            _connect(self._socket, folder)
            self._socket.setblocking(False)
        except OSError as error:
            self._socket.close()
            raise NoTerminalError(f"{task} has no terminal that could be attached to: it may have ended") from error

    async def receive(self) -> bytes | TerminalEnd | None:
        """What comes next."""
        try:
            message = await asyncio.get_running_loop().sock_recv(self._socket, MESSAGE_BYTES_MAX)
        except OSError:
            return None
        kind, content = message[:1], message[1:]
        if kind == ENDED:
            ended = json.loads(content)
            return TerminalEnd(ended["code"], ended["stopped"])
        return content if kind == SHOWN else None

    async def send(self, typed: bytes | Window) -> None:
        """Type, or say how large the window is."""
        message = SHOWN + typed if isinstance(typed, bytes) else WINDOW + b"%d %d" % (typed.rows, typed.columns)
        try:
            await asyncio.get_running_loop().sock_sendall(self._socket, message)
        except OSError as error:
            raise NoTerminalError("the terminal is gone") from error

    def close(self) -> None:
        """Let go."""
        self._socket.close()


def _connect(line: socket.socket, folder: Path) -> None:
    """By a short name: that of a socket may be 107 bytes long at most, and folders lie deep (unix(7))."""
    handle = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        line.connect(f"/proc/self/fd/{handle}/{TERMINAL}")
    finally:
        os.close(handle)
