"""Tells the task of this supervisor what its gang is told: by a file, by a signal to its first process, or by a dump."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from reconciler.supervisor.dump import dump
from reconciler.supervisor.taskfiles import REQUEST, TELLS, TOLD, write_durably


class TaskTeller:
    """What the task was told so far. The supervisor lives as long as the task does, so it need not look that up anywhere.

    `growth`: with which growth of its gang the task came. What was to be told before that is not for it.
    """

    def __init__(self, growth: int) -> None:
        self._growth = growth
        self._done = self._written = 0
        self._version = (0, 0)

    def look(self, leader: int | None) -> None:
        """Tell what is new, in order and each once; None where the task's first process has ended. A full disk puts it off."""
        with suppress(OSError):
            if leader is not None:
                for tell in self._news():
                    self._tell(tell, leader)
            if self._written < self._done:
                write_durably(TOLD, str(self._done))
                self._written = self._done

    def _news(self) -> Iterator[dict[str, Any]]:
        """What the file has that was not done; it is read only where it is another one than before."""
        try:
            found = os.stat(TELLS)
        except FileNotFoundError:
            return
        version = found.st_ino, found.st_mtime_ns
        if version == self._version:
            return
        with open(TELLS, encoding="utf-8") as file:
            tells = json.load(file)["tells"]
        yield from (tell for tell in tells if tell["number"] > self._done and self._growth <= tell["growth"])
        self._version = version

    def _tell(self, tell: dict[str, Any], leader: int) -> None:
        """A dump is none of the task's business: a request to save its work that it has not read yet stays."""
        if tell["reason"] != "dump":
            request = {name: tell[name] for name in ("number", "reason", "until")}
            write_durably(REQUEST, json.dumps(request), 0o644)  # The task may run as another user.
        self._done = tell["number"]
        if tell["reason"] == "dump":
            dump()
        if tell["signal"]:
            _send(leader, tell["signal"])


def _send(leader: int, name: str) -> None:
    """To the first process alone: it knows how to tell its children, and many of those would die of it."""
    number = getattr(signal, name, None)
    if not isinstance(number, signal.Signals):
        os.write(2, f"quorate: there is no signal {name!r} on this machine, so it was not sent\n".encode())
        return
    with suppress(PermissionError):  # It runs as another user (sudo).
        os.kill(leader, number)  # Our own child until we reap it, so the number is surely its.
