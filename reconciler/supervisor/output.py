"""Brings what a task without a terminal writes from its pipe to its log."""

from __future__ import annotations

import os
import select
from collections.abc import Mapping
from threading import Thread
from typing import Any

from reconciler.supervisor.log import CappedLog

PIECE_BYTES = 65_536
"""What a pipe holds (pipe(7))."""

_LOOK_EVERY_S = 0.1


class Output:
    """The pipe of a task and the thread beside it; `serve` once the task has its end."""

    def __init__(self, log: CappedLog, account: Mapping[str, Any] | None) -> None:
        self._log = log
        self._read_end, self.task_end = os.pipe()
        os.set_blocking(self._read_end, False)
        if account is not None:
            os.fchown(self.task_end, account["uid"], account["gid"])  # Else it could not open its own /dev/stderr.
        self._over = False
        self._thread = Thread(target=self._serve, name="output", daemon=True)

    def serve(self) -> None:
        """Begin."""
        os.close(self.task_end)
        self._thread.start()

    def drain(self) -> None:
        """Nothing of the task runs any more: bring the rest to the log. Other processes with its end are not waited for."""
        self._over = True
        self._thread.join()
        os.close(self._read_end)

    def _serve(self) -> None:
        while True:
            over = self._over  # Asked before the look: whatever was written until then is seen by it.
            ready, _, _ = select.select([self._read_end], [], [], _LOOK_EVERY_S)
            piece = os.read(self._read_end, PIECE_BYTES) if ready else b""
            if piece:
                self._log.append(piece)
            elif ready or over:
                return
