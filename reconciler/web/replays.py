"""Replays of rounds that were asked for on their pages: one at a time, beside everything else, and what came of them is kept."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from threading import Lock, Thread
from typing import Final, Literal, NamedTuple

from reconciler.api.problems import RequestRefusedError
from reconciler.control.replay import Replayed
from reconciler.control.replay_process import ReplayFailedError, replay_apart
from reconciler.protocols.history import History
from reconciler.protocols.rounds import RoundRecord
from reconciler.protocols.store_errors import StoreUnreachableError, StoreUnusableError

KEPT_MAX: Final = 100
"""Rounds of which it is known what came of their replay."""


class ReplayResult(NamedTuple):
    """How a replay stands; `words` say it."""

    state: Literal["runs", "same", "different", "failed"]
    words: str


RUNS: Final = ReplayResult("runs", "It is decided anew …")


class Replays:
    """Of one server, in its memory. Any thread may ask. `apart` replays a round, somewhere else than here."""

    def __init__(self, history: History, apart: Callable[[RoundRecord], Replayed] = replay_apart) -> None:
        self._history, self._apart = history, apart
        self._lock = Lock()
        self._known: dict[int, ReplayResult] = {}
        self._running = 0

    def begin(self, number: int) -> None:
        """Begin one, unless it runs already. Raises RequestRefusedError while another one runs."""
        with self._lock:
            if self._running == number:
                return
            if self._running:
                message = f"Round {self._running} is replayed now, and only one is at a time."
                raise RequestRefusedError(HTTPStatus.CONFLICT, "replay-runs", message, "Try again in a moment.")
            self._running = number
            self._keep(number, RUNS)
        Thread(target=self._run, args=(number,), name=f"replay of round {number}", daemon=True).start()

    def of(self, number: int) -> ReplayResult | None:
        """How the replay of a round stands; None: none was asked for, or it is too long ago."""
        with self._lock:
            return self._known.get(number)

    def _run(self, number: int) -> None:
        found = ReplayResult("failed", "It could not be replayed: the server failed, and its log says how.")
        try:
            found = self._replayed(number)
        finally:
            with self._lock:
                self._running = 0
                self._keep(number, found)

    def _replayed(self, number: int) -> ReplayResult:
        try:
            replayed = self._apart(self._history.round(number))
        except KeyError:
            return ReplayResult("failed", "It is not on record any more.")
        except (ReplayFailedError, StoreUnreachableError, StoreUnusableError) as error:
            return ReplayResult("failed", f"It could not be replayed: {error}.")
        if not replayed.identical:
            return ReplayResult("different", f"Another plan: {replayed.difference}.")
        how = (
            ", from the optimiser's recorded answer, since a clock had cut it" if replayed.from_recorded_answer else ""
        )
        return ReplayResult("same", f"The same plan, byte for byte{how}: {replayed.replayed_plan}")

    def _keep(self, number: int, found: ReplayResult) -> None:
        """The newest ones."""
        self._known.pop(number, None)
        self._known[number] = found
        while len(self._known) > KEPT_MAX:
            del self._known[next(iter(self._known))]
