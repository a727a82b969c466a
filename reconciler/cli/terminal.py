"""This process's terminal, connected to that of a task: raw while it lasts, and always given back as it was."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from types import FrameType
from typing import Final

from reconciler.api.attach_payloads import Detached
from reconciler.cli.exits import ExitCode
from reconciler.cli.output import CommandFailedError
from reconciler.client import ServerUnreachableError
from reconciler.client.terminal import Attachment

DETACH_KEY: Final = b"\x1d"
"""Ctrl-], as in telnet: no shell and few programs want it for themselves."""

_READ_BYTES: Final = 4_096


class Detachment:
    """The user let go of the terminal; the task goes on."""


def require_terminal() -> None:
    """Raises CommandFailedError where there is no terminal to connect."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        fix = "Run it at a terminal; for a command that needs none, leave out --pty and read `quorate logs`."
        raise CommandFailedError("stdin and stdout must be a terminal", fix=fix, exit_code=ExitCode.USAGE)


def connect_terminal(attachment: Attachment) -> Detached | Detachment | None:
    """Until the task ends, the user lets go, or the connection breaks (None). Call it from the main thread."""
    # Signals first: one that comes in between must find the handler that gives the terminal back.
    with _woken() as (woken, wake), _raw(sys.stdin.fileno()):
        reader = Thread(target=_show, args=(attachment, wake), name="shown", daemon=True)
        reader.start()
        try:
            left = _type(attachment, woken)
        except ServerUnreachableError:
            left = None
        finally:
            attachment.close()
            reader.join()
    return left or attachment.detached


def _show(attachment: Attachment, wake: Callable[[], None]) -> None:
    """Copy what comes to stdout; at the end the main thread is told."""
    try:
        for shown in attachment.shown():
            _write(sys.stdout.fileno(), shown)
    finally:
        wake()


def _type(attachment: Attachment, woken: int) -> Detachment | None:
    """Copy what is typed, and the window's size when that changes, until the connection is over or the user lets go."""
    stdin = sys.stdin.fileno()
    _tell_size(attachment)
    while True:
        ready, _, _ = select.select([stdin, woken], [], [])
        if woken in ready:
            signals = os.read(woken, _READ_BYTES)
            if _OVER in signals:
                return None
            _tell_size(attachment)
        if stdin in ready:
            typed = os.read(stdin, _READ_BYTES)
            before, key, _ = typed.partition(DETACH_KEY)
            attachment.type(before)
            if key or not typed:
                return Detachment()


def _tell_size(attachment: Attachment) -> None:
    size = os.get_terminal_size(sys.stdin.fileno())
    # A window that says nothing of its size has none.
    if size.lines and size.columns:
        attachment.resize(size.lines, size.columns)


_OVER: Final = b"\0"
"""No signal has this number."""


@contextmanager
def _woken() -> Iterator[tuple[int, Callable[[], None]]]:
    """A descriptor that can be read once a signal came, by which its number is read, or the function was called."""
    woken, waking = os.pipe()
    os.set_blocking(waking, False)
    before = signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
    handlers = {signal.SIGWINCH: signal.signal(signal.SIGWINCH, lambda *_: None)}
    for number in (signal.SIGTERM, signal.SIGHUP):
        handlers[number] = signal.signal(number, _leave)
    try:
        yield woken, lambda: _write(waking, _OVER)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(before)
        os.close(woken)
        os.close(waking)


def _leave(number: int, _: FrameType | None) -> None:
    """Go through every `finally`, so that the terminal is given back."""
    sys.exit(128 + number)


@contextmanager
def _raw(terminal: int) -> Iterator[None]:
    """Every key goes to the task, Ctrl-C too; afterwards the terminal is as before."""
    before = termios.tcgetattr(terminal)
    try:
        tty.setraw(terminal, termios.TCSADRAIN)  # Unlike its default, which throws away what was typed already.
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _write(file: int, content: bytes) -> None:
    while content:
        content = content[os.write(file, content) :]
