"""Says what each round would have done, and keeps a record of what really happened, where nothing is done."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import Final

from structlog.typing import FilteringBoundLogger

from reconciler.analysis.backtest.observed_files import ObservedFiles
from reconciler.control.dry_run import ProposedStep, Wishes, meaning_of, new_in, wishes_of
from reconciler.kubernetes.control.job_history import JobHistory
from reconciler.kubernetes.control.sight import Sight
from reconciler.kubernetes.control.state import KubernetesState
from reconciler.kubernetes.objects.jobs import PodGang
from reconciler.kubernetes.objects.pod_ownership import PodOwnership
from reconciler.model.clock import Clock
from reconciler.protocols.rounds import RoundRecord
from reconciler.protocols.store_errors import StoreUnusableError
from solver.model.cluster import Node
from solver.model.quantities import Instant
from solver.plan.plan import Plan

SAVE_EVERY_S: Final = 60.0
"""So much of what was seen is lost if the process is killed; what went on meanwhile is seen again at the next start."""


class Observer:
    """`whose`: the pods that are looked at. What happened is read back at the start.

    Raises TraceUnreadableError, OSError where it can't be.
    """

    def __init__(
        self,
        whose: PodOwnership,
        files: ObservedFiles,
        memory: KubernetesState,
        clock: Clock,
        log: FilteringBoundLogger,
    ) -> None:
        self.whose = whose
        self._files = files
        self._memory = memory
        self._clock = clock
        self._log = log
        self._happened = _read(files)
        self._said: Wishes = {}
        self._meaning = ""
        self._left_out: frozenset[str] = frozenset()
        self._nodes: tuple[Node, ...] = ()
        self._saved_s = float("-inf")

    def keep_round(self, record: RoundRecord) -> int | None:
        """Keep a round that says something else than the one before: its steps are not made true, so the next has them again.

        It is kept once it is whole, since nothing is done before.
        """
        if not record.is_whole:
            return None
        meaning = meaning_of(record.plan)
        if meaning == self._meaning:
            return None
        self._meaning = meaning
        return self._memory.keep_round(record)

    async def note(self, now: Instant, plan: Plan, sight: Sight) -> None:
        """One pass is over. Raises StoreUnusableError where the record can't be written."""
        wishes = wishes_of(plan)
        # Each line is synced to disk, and there may be thousands at once: off the event loop.
        await asyncio.to_thread(self._tell, list(new_in(wishes, self._said)))
        self._said = wishes
        self._say_left_out(sight.cluster.gangs)
        self._nodes = sight.cluster.nodes
        self._happened.look(now, sight.gangs, sight.pods)
        if self._clock.monotonic_s() - self._saved_s >= SAVE_EVERY_S:
            await self.save()

    def _tell(self, news: Iterable[tuple[str, ProposedStep]]) -> None:
        for subject, wish in news:
            self._memory.note(wish.event, subject, wish.cause, beneficiary=wish.beneficiary)

    def _say_left_out(self, gangs: Iterable[PodGang]) -> None:
        """Once for each cause: rounds and the record are without these gangs, and nothing else says so."""
        refused = Counter(refusal.code for gang in gangs if gang.job is None for refusal in gang.refusals)
        for code in sorted(refused.keys() - self._left_out):
            self._log.warning("left-out", gangs=refused[code], reason=code)
        self._left_out = frozenset(refused)

    async def save(self) -> None:
        """Write what happened until now; nothing before the first pass. Raises StoreUnusableError."""
        if not self._nodes:
            return
        self._saved_s, now = self._clock.monotonic_s(), self._clock.now()
        self._happened.forget(now)
        try:
            # Off the event loop: of a large cluster it takes a second, and watches go on.
            await asyncio.to_thread(self._files.write, now, self._happened.jobs(), self._nodes)
        except OSError as error:
            raise StoreUnusableError(f"{self._files.history}: what happened can't be written: {error}") from error


def _read(files: ObservedFiles) -> JobHistory:
    return JobHistory(*files.read())
