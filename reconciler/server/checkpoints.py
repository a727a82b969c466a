"""The thread that keeps checkpoints, beside the loop and under its epoch."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event as Signal
from typing import Final, NamedTuple

from structlog.typing import FilteringBoundLogger

from reconciler.control.control import ControlPlane, NoPolicyError
from reconciler.lifecycle.checkpoints.keeper import Keeper
from reconciler.model.job_record import JobRecord
from reconciler.protocols.backend import Epoch, StaleEpochError
from reconciler.protocols.job_source import JobQuery
from reconciler.protocols.ledger import Claim
from solver.model.quantities import Duration, Instant
from solver.model.workload import JobName

LATE_PARTS = Duration(48 * 3_600_000)
"""For how long the folder of a job that has ended is still looked at, though no checkpoint of it is known."""

LONG_ENDED_EVERY_S: Final = 600.0
"""The folders of all others that have ended, and have a checkpoint, are looked at so seldom: nothing comes to them, and there are
ever more of them. Their checkpoints get too old, which is a matter of days."""


_ENDED: Final = JobQuery(live=False)


class _Seen(NamedTuple):
    """Jobs that live and have begun, the newest of those that have ended, and what jobs hold, as of so many writes."""

    written: int
    live: dict[JobName, JobRecord]
    ended: tuple[JobRecord, ...]
    claims: tuple[Claim, ...]


@dataclass
class CheckpointKeeping:
    """Call `run` in a thread of its own; `stop` from any. `epoch` gives that of the loop, None while it does not lead.

    `wake` lets the loop know of news: a job may wait for a checkpoint.
    """

    plane: ControlPlane
    keeper: Keeper
    epoch: Callable[[], Epoch | None]
    log: FilteringBoundLogger
    wake: Callable[[], None] = lambda: None
    every_s: float = 2.0
    _stopped: Signal = field(default_factory=Signal)
    _known: dict[str, str] = field(default_factory=dict)
    _long_ended_at_s: float = -math.inf
    _seen: _Seen | None = None

    def run(self) -> None:
        """Look until stopped. Raises StoreUnusableError."""
        while not self._stopped.is_set():
            self.look()
            self._stopped.wait(self.every_s)

    def stop(self) -> None:
        """Let `run` return after the look that is under way."""
        self._stopped.set()

    def look(self) -> None:
        """One step of the keeper; what came of it is recorded. Without the lead or a policy there is nothing to do."""
        epoch, now = self.epoch(), self.plane.clock.now()
        if epoch is None:
            return
        try:
            policies = {policy.name: policy for policy in self.plane.policies.current().operations.checkpoints}
            seen = self._look_again()
            kept = self.keeper.step(epoch, policies, self._records(seen, now), seen.claims, now)
        except (NoPolicyError, StaleEpochError) as error:
            self.log.info("checkpoints-not-kept", reason=str(error))
            return
        for event in kept.events:
            self.plane.history.record_event(event)
        if kept.events:
            self.wake()
        problems = dict(kept.problems)
        if problems != self._known:
            self._known = problems
            for name, message in problems.items():
                self.log.warning("checkpoint-storage", policy=name, message=message)

    def _look_again(self) -> _Seen:
        """What the stores hold, read anew where anything was written since."""
        written = self.plane.ledger.written()
        if self._seen is None or self._seen.written != written:
            # A job that never had a device has saved nothing: thousands may wait, and a look at a folder takes its time.
            begun = self.plane.ledger.attempts()
            live = {record.name: record for record in self.plane.jobs.live_jobs() if record.name in begun}
            self._seen = _Seen(written, live, self.plane.jobs.jobs(query=_ENDED), self.plane.ledger.claims())
        return self._seen

    def _records(self, seen: _Seen, now: Instant) -> tuple[JobRecord, ...]:
        """Live jobs that have begun, those that ended lately, and, now and then, those that still have a checkpoint."""
        live = seen.live
        ended = {
            record.name: record
            for record in seen.ended
            if record.outcome is not None and now - record.outcome.at < LATE_PARTS
        }
        holding: dict[JobName, JobRecord] = {}
        now_s = self.plane.clock.monotonic_s()
        if now_s >= self._long_ended_at_s + LONG_ENDED_EVERY_S:
            self._long_ended_at_s = now_s
            others = (name for name in self.plane.checkpoints.holders() if name not in live)
            holding = {name: self.plane.jobs.job(name) for name in others}
        every = {**ended, **holding, **live}
        return tuple(record for _, record in sorted(every.items()) if record.spec.checkpoint is not None)
