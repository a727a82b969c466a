"""Control planes that are killed while they put on record what they do; run as a process, each is one of its children.

`python -m tests.reconciler.control.killed_passes STORE KILLS` prints a line for each: when it was killed, and what is told wrong.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from reconciler.backends.simulated.backend import SimulatedBackend
from reconciler.backends.simulated.behaviour import KIND
from reconciler.backends.simulated.cluster import SimulatedCluster
from reconciler.documents.operations import Operations
from reconciler.model.clock import SIMULATION_START, VirtualClock
from reconciler.protocols.history import Event
from reconciler.store.history import SqlHistory
from reconciler.store.store import SqlStore, open_store
from solver.model.quantities import Duration
from solver.model.workload import QueueName
from solver.policy.policy import Queue, SchedulingPolicy, policy_of
from tests.contracts.simulated_worlds import NODES
from tests.reconciler.control.plane import Site

COMMANDS = (("sleep", "2s"), ("false",), ("sleep", "forever"), ("true",))


class Successor(Site):
    """A site on a store that others have left, with a cluster that knows nothing."""

    def __init__(self, store: SqlStore, later_s: int) -> None:
        self.clock = VirtualClock(SIMULATION_START.after(later_s * 1_000))
        self.store = store
        self.cluster = SimulatedCluster(NODES, self.clock, random.Random(1), KIND)
        self.backend = SimulatedBackend(self.cluster)
        self.policy = policy_of((Queue(QueueName("q")),), (), SchedulingPolicy(start_deadline=Duration(20_000)))
        self.declared = NODES
        self.operations = Operations()
        self.only_plane = self.plane("only")

    def until_all_have_ended(self) -> None:
        """Raises AssertionError where some do not."""
        for _ in range(300):
            if not self.store.jobs.live_jobs():
                return
            self.one_pass()
        raise AssertionError([record.name for record in self.store.jobs.live_jobs()])


def prepare(store: SqlStore) -> None:
    """Jobs that end well, fail, run into their limit, and wait."""
    site = Successor(store, 0)
    for number in range(5):
        site.submit(f"job-{number}", COMMANDS[number % 4], limit_s=4, gpus=2)
    site.submit("large", ("true",), tasks=2, gpus=4)


def told_wrongly(store: SqlStore) -> Iterator[str]:
    """Acts on record without one event, and events without their act."""
    claims = {claim.job: claim for claim in store.ledger.claims()}
    intents, kept = store.ledger.intents(), {known.holder for known in store.ledger.reservations()}
    for record in store.jobs.jobs():
        told = Counter((event.kind, event.attempt) for event in store.history.events(record.name, 10_000))
        kinds = Counter(kind for kind, _ in told.elements())
        claim, last = claims.get(record.name), store.ledger.last_attempt(record.name)
        done = Counter({("bound", attempt): 1 for attempt in range(1, last + 1)})
        done.update(("released", attempt) for attempt in range(1, last + 1) if claim is None or attempt < claim.attempt)
        if record.outcome is not None:
            done[record.outcome.state, record.outcome.attempt] += 1
        of_kinds = {"bound", "released", "succeeded", "failed", "cancelled"}
        if {key: times for key, times in told.items() if key[0] in of_kinds} != dict(done):
            yield f"{record.name}: {dict(told)}, where {dict(done)} was done"
        if claim is not None and told["running", claim.attempt] != (claim.running_since is not None):
            yield f"{record.name} runs since {claim.running_since}: {dict(told)}"
        stops = {intent.attempt for intent in intents if intent.kind == "stop" and intent.job == record.name}
        if any(told["asked-to-stop", attempt] != 1 for attempt in stops):
            yield f"{record.name} was asked to stop in {stops}: {dict(told)}"
        if kinds["retried"] != sum(not failure.outlived for failure in record.failures if failure.not_before):
            yield f"{record.name} has failed as {record.failures}: {dict(told)}"
        if record.name in kept and not kinds["reserved"]:
            yield f"something is kept free for {record.name}: {dict(told)}"


def _killed_at(store: SqlStore, number: int, when: str) -> None:
    """Take passes, and be killed before, or after, the events of the n-th act are written."""
    keep, left = SqlHistory.record_events, [number // 2]

    def record(history: SqlHistory, told: Iterable[Event]) -> None:
        rows = list(told)
        left[0] -= bool(rows)
        if left[0] < 0 and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        keep(history, rows)
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    SqlHistory.record_events = record  # type: ignore[method-assign,assignment]
    Successor(store, 100 * (number + 1)).passes(60)


def main(where: str, kills: int) -> None:
    """One after the other, on what the one before has left."""
    place = where if "://" in where else Path(where)
    for number in range(kills):
        when = ("before", "after")[number % 2]
        child = os.fork()
        if not child:
            _killed_at(open_store(place), number, when)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        store = open_store(place)
        print(f"{when}\t{os.WTERMSIG(status)}\t{'; '.join(told_wrongly(store))}")
        store.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
