"""Gives a task a terminal of its own, and lets people attach theirs to it while it runs.

The supervisor holds the other end. It copies what the task shows to the log, and to every client attached over a socket in the
task's folder: SOCK_SEQPACKET, so that a message stays one (unix(7)). The first byte of a message says what it is:

- `d` and bytes: shown by the task, or typed to it;
- `w` and `ROWS COLUMNS`: the size of an attached window;
- `x` and a JSON object: the task has ended, with `code`, and `stopped` where it was told to.
"""

from __future__ import annotations

import fcntl
import json
import os
import selectors
import socket
import struct
import termios
import time
from collections.abc import Mapping
from contextlib import suppress
from threading import Thread
from typing import Any

from reconciler.supervisor.log import CappedLog
from reconciler.supervisor.taskfiles import TERMINAL

SHOWN, WINDOW, ENDED = b"d", b"w", b"x"
MESSAGE_BYTES_MAX = 1 + 32_768
SCROLLBACK_BYTES = 65_536
"""What a new client is shown first: the end of what was shown before, some screens of it."""

ROWS, COLUMNS = 24, 80
"""Until a window is attached: what terminals without a size of their own have had since the VT100."""

_PENDING_BYTES_MAX = 262_144
"""A client with so much yet to take makes the task wait, as any terminal does; one that takes nothing for so long is let go."""
_PATIENCE_S = 10.0
_LOOK_EVERY_S = 0.1
_PENDING_INPUT_MAX = 65_536


class Terminal:
    """The pair of a pseudo-terminal and the socket beside it; `serve` from a thread, once the task has its end."""

    def __init__(self, log: CappedLog) -> None:
        self._master, self.task_end = os.openpty()
        os.set_blocking(self._master, False)
        self._resize(ROWS, COLUMNS)
        self._log = log
        self._listener = _listen()
        self._attached: dict[socket.socket, _Attached] = {}
        self._scrollback = b""
        self._typed = b""
        self._over = False
        self._thread = Thread(target=self._serve, name="terminal", daemon=True)
        self.keystrokes = 0
        """How many messages were typed so far: a sign that a user is there."""

    def serve(self) -> None:
        """Begin. This process keeps the task's end open too: a task that closes its own may open its terminal again."""
        self._thread.start()

    def drain(self) -> None:
        """Nothing of the task runs any more: bring what it has shown to the log, and let no other client come."""
        self._over = True
        self._thread.join()
        _unlink()
        self._listener.close()

    def close(self, ended: dict[str, Any]) -> None:
        """Send what is left, say how the task ended, and let all clients go."""
        for attached in self._attached.values():
            attached.finish(ENDED + json.dumps(ended).encode())

    def _serve(self) -> None:
        """Until the task is over and all that it has shown was read."""
        while True:
            over = self._over  # Asked before the look: whatever was shown until then is seen by it.
            with selectors.DefaultSelector() as ready:
                self._register(ready)
                events = ready.select(_LOOK_EVERY_S)
            for key, mask in events:
                if key.fileobj == self._listener:
                    self._welcome()
                elif key.fileobj == self._master:
                    self._copy(mask)
                elif isinstance(key.fileobj, socket.socket):
                    self._hear(key.fileobj, mask)
            for attached in [each for each in self._attached.values() if each.is_hopeless]:
                self._let_go(attached.line)
            if over and not self._is_full and all(key.fileobj != self._master for key, _ in events):
                return

    def _register(self, ready: selectors.BaseSelector) -> None:
        """What is worth waiting for: no output while a client has too much of it, no keys while the task reads none."""
        ready.register(self._listener, selectors.EVENT_READ)
        typed = self._typed and not self._over
        wanted = (selectors.EVENT_WRITE if typed else 0) | (0 if self._is_full else selectors.EVENT_READ)
        if wanted:
            ready.register(self._master, wanted)
        for line, attached in self._attached.items():
            wanted = selectors.EVENT_READ if len(self._typed) < _PENDING_INPUT_MAX else 0
            wanted |= selectors.EVENT_WRITE if attached.pending else 0
            if wanted:
                ready.register(line, wanted)

    @property
    def _is_full(self) -> bool:
        return any(len(each.pending) >= _PENDING_BYTES_MAX for each in self._attached.values())

    def _welcome(self) -> None:
        try:
            line, _ = self._listener.accept()
        except BlockingIOError:
            return  # The client has gone again.
        line.setblocking(False)
        attached = self._attached[line] = _Attached(line)
        attached.show(self._scrollback)

    def _copy(self, mask: int) -> None:
        """Between the task and the others."""
        with suppress(BlockingIOError):
            if mask & selectors.EVENT_WRITE:
                self._typed = self._typed[os.write(self._master, self._typed) :]
        with suppress(BlockingIOError):
            if mask & selectors.EVENT_READ:
                self._show(os.read(self._master, MESSAGE_BYTES_MAX - 1))

    def _show(self, shown: bytes) -> None:
        self._log.append(shown)
        self._scrollback = (self._scrollback + shown)[-SCROLLBACK_BYTES:]
        for attached in self._attached.values():
            attached.show(shown)

    def _hear(self, line: socket.socket, mask: int) -> None:
        try:
            if mask & selectors.EVENT_WRITE:
                self._attached[line].flush()
            if mask & selectors.EVENT_READ:
                message = line.recv(MESSAGE_BYTES_MAX)
                if not message:
                    self._let_go(line)
                self._do(message[:1], message[1:])
        except BlockingIOError:
            return
        except OSError:
            self._let_go(line)

    def _do(self, kind: bytes, content: bytes) -> None:
        if kind == SHOWN:
            self.keystrokes += 1
            self._typed += content
        elif kind == WINDOW:
            rows, columns = content.split()
            self._resize(int(rows), int(columns))

    def _resize(self, rows: int, columns: int) -> None:
        """The kernel sends SIGWINCH to the foreground processes, where this is another size than before."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def _let_go(self, line: socket.socket) -> None:
        self._attached.pop(line, None)
        line.close()


class _Attached:
    """One client, and what is yet to be sent there."""

    def __init__(self, line: socket.socket) -> None:
        self.line = line
        self.pending = b""
        self._took_at_s = time.monotonic()

    @property
    def is_hopeless(self) -> bool:
        """They have taken nothing for long, and make the task wait."""
        return len(self.pending) >= _PENDING_BYTES_MAX and time.monotonic() > self._took_at_s + _PATIENCE_S

    def show(self, shown: bytes) -> None:
        """Send it, now or later. A line that is broken is found out by reading from it."""
        self.pending += shown
        with suppress(OSError):
            self.flush()

    def flush(self) -> None:
        """Send what can be sent without waiting. Raises OSError where the line is broken."""
        while self.pending:
            piece = self.pending[: MESSAGE_BYTES_MAX - 1]
            try:
                self.line.send(SHOWN + piece)
            except BlockingIOError:
                return
            self.pending, self._took_at_s = self.pending[len(piece) :], time.monotonic()

    def finish(self, last: bytes) -> None:
        """Send all of it, and how it ended; a client that is gone, or much too slow for that, is not waited for."""
        self.line.settimeout(_PATIENCE_S)
        with suppress(OSError):
            self.flush()
            self.line.send(last)
        self.line.close()


def become_session_leader(task_end: int, account: Mapping[str, Any] | None) -> None:
    """Called in the task's process: it leads a session, of which this is the terminal (tty_ioctl(4)), and that of its account."""
    os.setsid()
    if account is not None:
        os.fchown(task_end, account["uid"], account["gid"])
    fcntl.ioctl(task_end, termios.TIOCSCTTY, 0)


def _listen() -> socket.socket:
    """For the owner of the folder alone. The name is relative, since absolute ones may be 107 bytes long at most."""
    _unlink()  # Of a supervisor that died before it began.
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    mask = os.umask(0o177)
    try:
        listener.bind(TERMINAL)
    finally:
        os.umask(mask)
    listener.listen()
    listener.setblocking(False)
    return listener


def _unlink() -> None:
    with suppress(FileNotFoundError):
        os.unlink(TERMINAL)
