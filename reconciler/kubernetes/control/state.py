"""What no object of the cluster says, kept in the state folder's store: evictions, lengths of jobs, past use, clocks, rounds.

A successor with another state folder begins without it: then shares of past use, the least rest between evictions, the clocks of
lowered limits and what is expected of jobs without a limit start anew; nothing that runs depends on it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from reconciler.control.passes import accrue, record_news
from reconciler.kubernetes.control.job_history import EndedGangs
from reconciler.kubernetes.control.sight import Remembered, Sight
from reconciler.model.clock import Clock
from reconciler.protocols.backend import Epoch
from reconciler.protocols.gone_pods import GonePods
from reconciler.protocols.history import Event, History
from reconciler.protocols.ledger import Claim, Ledger
from reconciler.protocols.rounds import RoundRecord
from solver.model.cluster import Node
from solver.model.inflight import ConvergenceClock, Ended
from solver.model.quantities import Duration, Instant
from solver.model.workload import JobName, QueueName
from solver.policy.policy import Policy
from solver.queueing.durations import HISTORY_JOBS

NO_EPOCH = Epoch(0)
EVICTED = "asked-to-stop"
"""The event of a gang that is asked to leave."""
FORGOTTEN_AFTER = Duration(86_400_000)
"""A gang that is gone for so long does not come back from its last eviction. Limits of evictions look back a day."""


class HistoryEntry(NamedTuple):
    """A line for the record; `purpose` and `beneficiary` are an eviction's."""

    kind: str
    subject: str
    cause: str
    state: str = ""
    attempt: int = 0
    purpose: str = ""
    beneficiary: str = ""


@dataclass
class KubernetesState:
    """`holder` leads the store, which lies in a locked folder: whose writes of the cluster are the leader's is another question."""

    ledger: Ledger
    history: History
    gone_pods: GonePods
    clock: Clock
    holder: str
    lease: Duration
    _epoch: Epoch = field(default=NO_EPOCH)
    _led: Epoch | None = None
    """The epoch of the cluster in which it was looked last."""
    _evictions: dict[JobName, tuple[Instant, ...]] = field(default_factory=dict)
    _ended: dict[tuple[JobName, Instant], Ended] = field(default_factory=dict)
    _ended_gangs: EndedGangs = field(default_factory=EndedGangs)
    _is_read: bool = False
    _revision: str = ""

    @property
    def epoch(self) -> Epoch | None:
        """Under which the store is written; None before the first pass."""
        return self._epoch or None

    def open(self) -> None:
        """Be sure of the store, before a pass. Raises NotLeaderError, StoreUnusableError."""
        self._epoch = self.ledger.lead(self.holder, self.clock.now(), self.lease)
        if not self._is_read:
            self._evictions = self.gone_pods.evictions()
            self._keep_ended(self.gone_pods.ended())
            self._is_read = True

    def is_new(self, revision: str) -> bool:
        """Whether this revision of the policy is another than that of the pass before."""
        before, self._revision = self._revision, revision
        return before != revision

    def look(self, epoch: Epoch, sight: Sight) -> None:
        """Learn from what is there: what has ended, was asked to leave and is not on record, or is gone for good.

        `epoch`: in which the cluster is led. What went on while others led is not known, and not guessed.
        """
        now, gangs = self.clock.now(), sight.gangs
        if epoch != self._led:
            self._led, self._ended_gangs = epoch, EndedGangs()
        ended = self._ended_gangs.look(now, gangs, sight.pods)
        if ended:
            self.gone_pods.keep_ended(self._epoch, ended)
            self._keep_ended(ended)
        for intent in sight.intents:
            if intent.kind == "stop" and intent.evicts and not self._knows(intent.job, intent.asked_at):
                # The leader that asked it died before that was on record.
                why = f"it was asked to leave at {intent.asked_at}, as its pods say"
                self.note(EVICTED, intent.job, why, state="checkpointing", attempt=intent.attempt, purpose="evict")
        self._forget({job for job in self._evictions if job not in gangs}, now)

    def remembered(self) -> Remembered:
        """For the next snapshot."""
        ended = tuple(self._ended.values())
        return Remembered(dict(self._evictions), self.ledger.past_use().usage, self.ledger.clocks(), ended)

    def accrue(self, policy: Policy, holders: Iterable[tuple[QueueName, str, Claim]], nodes: Iterable[Node]) -> None:
        """Bring past use up to date, where the policy lets it count: before a pass changes what jobs hold."""
        accrue(self.ledger, self._epoch, self.clock.now(), policy, holders, nodes)

    def keep_clocks(self, clocks: Sequence[ConvergenceClock]) -> None:
        """Since when which limits are broken."""
        self.ledger.keep_clocks(self._epoch, tuple(clocks))

    def keep_round(self, record: RoundRecord) -> int | None:
        """Keep a round that says something new, before it is acted on."""
        return record_news(self.history, self._epoch, record)

    def note(self, kind: str, subject: str, cause: str, *, state: str = "", attempt: int = 0, **why: str) -> None:
        """One line on record; `why`: an eviction's purpose and beneficiary."""
        self.note_all([HistoryEntry(kind, subject, cause, state, attempt, **why)])

    def note_all(self, notes: Iterable[HistoryEntry]) -> None:
        """Lines on record by one write: a write for each of thousands of gangs holds up watches and the lease for seconds."""
        now, told = self.clock.now(), tuple(notes)
        self.history.record_events(
            Event(
                now,
                note.kind,
                note.subject,
                note.cause,
                self.holder,
                note.state,
                note.attempt,
                note.purpose,
                note.beneficiary,
            )
            for note in told
        )
        evicted = [JobName(note.subject) for note in told if (note.kind, note.purpose) == (EVICTED, "evict")]
        if evicted:
            self.gone_pods.keep_evictions(self._epoch, evicted, now)
            for job in evicted:
                self._evictions[job] = (*self._evictions.get(job, ()), now)

    def call_off(self, job: JobName) -> None:
        """Its last eviction did not come to be."""
        *before, last = self._evictions.get(job, (None,))
        if last is None:
            return
        self.gone_pods.call_off(self._epoch, job, last)
        self._evictions.pop(job)
        if before:
            self._evictions[job] = tuple(before)

    def _knows(self, job: JobName, asked_at: Instant) -> bool:
        return any(at >= asked_at for at in self._evictions.get(job, ()))

    def _forget(self, gone: Collection[JobName], now: Instant) -> None:
        old = {job for job in gone if self._evictions[job][-1].after(FORGOTTEN_AFTER) < now}
        if old:
            self.gone_pods.forget(self._epoch, old)
            self._evictions = {job: times for job, times in self._evictions.items() if job not in old}

    def _keep_ended(self, ended: Iterable[Ended]) -> None:
        """The last submitted of them, as the store does."""
        known = self._ended | {(one.job, one.submitted_at): one for one in ended}
        newest = sorted(known.values(), key=lambda one: (-one.submitted_at, one.job))[:HISTORY_JOBS]
        self._ended = {(one.job, one.submitted_at): one for one in newest}
