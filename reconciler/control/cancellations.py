"""Tells gangs that are cancelled to stop, beside the pass that is under way: a round of a large cluster takes seconds.

What is done is what the next pass would do first, in the same order: on record, then told. A round that is being decided
meanwhile may want something else of such a gang; the ledger refuses it, or knows the stop already.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from queue import Empty, SimpleQueue

from reconciler.control.control import ControlPlane, NoPolicyError
from reconciler.control.settler import Settler
from reconciler.lifecycle.jobs.gang_stop import asked_by_people
from reconciler.protocols.backend import Epoch, StaleEpochError
from reconciler.protocols.store_errors import StoreFullError, StoreUnreachableError
from solver.model.workload import JobName


class Cancellations:
    """Call `run` in a thread of its own; `tell` and `stop` from any. `epoch` gives that of the loop, None before it led."""

    def __init__(self, plane: ControlPlane, epoch: Callable[[], Epoch | None]) -> None:
        self._plane = plane
        self._epoch = epoch
        self._asked: SimpleQueue[Collection[JobName] | None] = SimpleQueue()

    def tell(self, jobs: Collection[JobName]) -> None:
        """It is on record that these are to end."""
        self._asked.put(tuple(jobs))

    def stop(self) -> None:
        """Let `run` return after what is under way."""
        self._asked.put(None)

    def run(self) -> None:
        """Settle what is told until stopped. Raises StoreUnusableError.

        Nothing is lost where it can't be done: the request is on record, and the next pass, of whichever leads, finds it there.
        """
        while (names := self._asked.get()) is not None:
            together = {*names}
            try:
                while (more := self._asked.get_nowait()) is not None:
                    together |= {*more}
                self._asked.put(None)
            except Empty:
                pass
            try:
                self.settle(together)
            except (StaleEpochError, NoPolicyError, StoreFullError, StoreUnreachableError):
                continue

    def settle(self, names: Collection[JobName]) -> None:
        """Ask those of the jobs to stop that hold devices and were not asked yet. Raises what the store does, StaleEpochError."""
        epoch, plane = self._epoch(), self._plane
        if epoch is None:
            return
        holds = plane.ledger.of(names)
        stopping = {(intent.job, intent.attempt) for intent in holds.intents if intent.kind == "stop"}
        wanted = []
        for record in plane.jobs.named(names).values():
            claim = holds.claims.get(record.name)
            if claim is None or record.outcome is not None or not record.cancel_requested_by:
                continue
            asked = asked_by_people(record, claim)
            if asked is not None and (claim.job, claim.attempt) not in stopping:
                wanted.append(asked)
        Settler(plane, epoch).apply_all(wanted)
