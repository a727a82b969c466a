"""Says what each round would have done beside Slurm, and keeps on disk what really happened and how both compare."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from structlog.typing import FilteringBoundLogger

from reconciler.analysis.backtest.observed_files import ObservedFiles, write_whole
from reconciler.analysis.traces import TraceUnreadableError
from reconciler.control.dry_run import Wishes, meaning_of, new_in, wishes_of
from reconciler.control.passes import record_news
from reconciler.model.clock import Clock
from reconciler.model.comparison import ObservedComparison
from reconciler.protocols.backend import Epoch
from reconciler.protocols.history import Event, History
from reconciler.protocols.ledger import Ledger
from reconciler.protocols.rounds import RoundRecord
from reconciler.protocols.store_errors import StoreUnusableError
from reconciler.slurm.comparison import SlurmComparison
from reconciler.slurm.history import SlurmHistory
from reconciler.slurm.look import SlurmLook
from solver.model.cluster import Node
from solver.model.inflight import Ended
from solver.model.quantities import Duration
from solver.plan.plan import Plan

SAVE_EVERY_S: Final = 60.0
"""So much of what was seen is lost if the process is killed."""


@dataclass(frozen=True, slots=True)
class SlurmMemory:
    """Where an observer keeps what it says: a store of its own, in its own folder."""

    ledger: Ledger
    history: History
    holder: str
    files: ObservedFiles
    comparison: Path


class SlurmObserver:
    """Reads back at the start what it wrote. `every`: how far apart looks are.

    Raises TraceUnreadableError, OSError where it can't be.
    """

    def __init__(self, memory: SlurmMemory, every: Duration, clock: Clock, log: FilteringBoundLogger) -> None:
        self.memory = memory
        self._clock = clock
        self._log = log
        self._history = SlurmHistory(*memory.files.read())
        kept = memory.comparison.read_bytes() if memory.comparison.exists() else b""
        try:
            self._comparison = SlurmComparison(int(every), clock.now(), kept)
        except ValueError as error:
            raise TraceUnreadableError(f"{memory.comparison}: {error}") from error
        self._said: Wishes = {}
        self._meaning = ""
        self._doubts: frozenset[str] = frozenset()
        self._nodes: tuple[Node, ...] = ()
        self._saved_s = float("-inf")

    @property
    def summary(self) -> ObservedComparison:
        """How rounds and Slurm compare until now."""
        return self._comparison.summary

    def ended(self) -> tuple[Ended, ...]:
        """How long jobs ran that have ended."""
        return self._history.ended()

    def keep_round(self, epoch: Epoch, record: RoundRecord) -> int | None:
        """Keep a round that says something else than the one before: its steps are not made true, so the next has them again."""
        if not record.is_whole:
            return None
        meaning = meaning_of(record.plan)
        if meaning == self._meaning:
            return None
        self._meaning = meaning
        return record_news(self.memory.history, epoch, record)

    def note(self, seen: SlurmLook, plan: Plan, step_ms: int) -> None:
        """One round is over. Raises StoreUnusableError where it can't be written."""
        now, wishes = self._clock.now(), wishes_of(plan)
        self.record_events(
            Event(now, wish.event, subject, wish.cause, self.memory.holder, "", 0, "", wish.beneficiary)
            for subject, wish in new_in(wishes, self._said)
        )
        self._said = wishes
        self._say_doubts(seen.doubts)
        self._nodes = seen.nodes
        self._history.look(now, (*seen.jobs, *seen.past), seen.facts)
        self._comparison.look(now, self._clock.monotonic_s(), seen, plan, step_ms)
        if self._clock.monotonic_s() - self._saved_s >= SAVE_EVERY_S:
            self.save()

    def record_events(self, events: Iterable[Event]) -> None:
        """Lines on record."""
        self.memory.history.record_events(tuple(events))

    def fail(self, why: str) -> None:
        """Slurm did not answer, or not so that it could be read."""
        self._comparison.fail(self._clock.now(), why)

    def save(self) -> None:
        """Write what happened until now; nothing before the first round. Raises StoreUnusableError."""
        if not self._nodes:
            return
        self._saved_s, now = self._clock.monotonic_s(), self._clock.now()
        self._history.forget(now)
        files = self.memory.files
        try:
            files.write(now, self._history.jobs, self._nodes)
            write_whole(self.memory.comparison, self._comparison.written())
        except OSError as error:
            raise StoreUnusableError(f"{files.history}: what happened can't be written: {error}") from error

    def say_result(self) -> None:
        """How it compares, in a line of the log: the end of observing."""
        found = self.summary
        counts, use = found.counts, found.use
        self._log.info(
            "observed-beside-slurm",
            earlier=counts.earlier,
            same=counts.same,
            later=counts.later,
            would_start=counts.would_start,
            would_evict=counts.evicted,
            in_use=_share(use.used_ms, use.gpu_ms),
            in_use_by_plans=_share(use.planned_ms, use.gpu_ms),
            looks=found.looks,
            failed=found.failed,
            file=str(self.memory.comparison),
        )

    def _say_doubts(self, doubts: tuple[str, ...]) -> None:
        """Each kind once for as long as there is one: how many jobs it is of changes with every look."""
        now = {_kind(doubt): doubt for doubt in doubts}
        for kind in sorted(now.keys() - self._doubts):
            self._log.warning("not-known", message=now[kind])
        self._doubts = frozenset(now)


def _kind(doubt: str) -> str:
    return "".join(character for character in doubt.partition(",")[0] if not character.isdigit()).partition(" ")[2][:60]


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else "unknown"
