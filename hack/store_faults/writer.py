"""Works on a store as a server does, and says on its output what was acknowledged: `python -m hack.store_faults.writer STORE RUN`.

One line for each: `job NAME`, `done NAME`, `event NUMBER`, `claim NAME`; `refused KIND MESSAGE` for what the store did not do. It
tries again what may pass, and ends with 3 where a person has to act, as `quorate run` does.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

from reconciler.model.job_record import JobOutcome
from reconciler.protocols.backend import Epoch
from reconciler.protocols.history import Event
from reconciler.protocols.ledger import Claim, NotLeaderError
from reconciler.protocols.store_errors import StoreUnreachableError, StoreUnusableError
from reconciler.store.store import SqlStore, open_store
from solver.model.cluster import DeviceId, NodeName
from solver.model.inflight import Intent
from solver.model.quantities import Duration, Instant
from solver.model.shape import Shape
from solver.model.workload import JobName, JobSpec, QueueName, TaskGroup, TaskPlacement

SPEC = JobSpec(QueueName("q"), (TaskGroup("worker", 1, Shape(gpus=1)),), command=("true",))
LEASE = Duration(2_000)
"""Shorter than what is tried again for: a process that was killed leaves its lease behind."""
PAUSE_S = 0.02
TRIES_MAX = 400


def now() -> Instant:
    """By this machine's clock."""
    return Instant(time.time_ns() // 1_000_000)


def say(what: str) -> None:
    """A line that is heard at once, since this process may be killed at any write."""
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


def until_done(what: str, deed: Callable[[], object]) -> None:
    """Try a deed until it is done, and say so. Raises StoreUnusableError where trying again is in vain."""
    for _ in range(TRIES_MAX):
        try:
            deed()
        except StoreUnreachableError as error:
            say(f"refused {type(error).__name__} {' '.join(str(error).split())}")
            time.sleep(PAUSE_S)
        except NotLeaderError as error:
            say(f"refused NotLeaderError {error}")
            time.sleep(PAUSE_S)
        else:
            say(what)
            return
    raise StoreUnusableError(f"{what}: not done in {TRIES_MAX} tries")


def work(store: SqlStore, run: str, number: int) -> None:
    """One job from its submission to its end, as a leader takes it there. Every write may be repeated."""
    name = JobName(f"{run}-{number}")
    until_done(f"job {name}", lambda: store.jobs.submit(name, SPEC, "ada", now(), f"key-{name}"))
    epoch = leading(store, run)
    at = now()
    held = (TaskPlacement("worker", 0, NodeName("n1"), (DeviceId("n1/0"),)),)
    start = Intent("start", name, 1, at, at.after(60_000), held)
    until_done(f"claim {name}", lambda: claim(store, epoch, Claim(name, 1, held, at), start))
    event = Event(now(), "told", name, f"{run} {number}", "ada")
    until_done(f"event {name}", lambda: store.history.record_event(event))
    until_done(f"done {name}", lambda: end(store, epoch, name))


def leading(store: SqlStore, run: str) -> Epoch:
    """The lead, once it is to be had."""
    found = list[Epoch]()
    until_done("leads", lambda: found.append(store.ledger.lead(run, now(), LEASE)))
    return found[-1]


def claim(store: SqlStore, epoch: Epoch, wanted: Claim, start: Intent) -> None:
    """Take its device, unless a try of which nothing was heard has."""
    if store.ledger.held_by(wanted.job) is None:
        store.ledger.claim(epoch, wanted, start)


def end(store: SqlStore, epoch: Epoch, name: JobName) -> None:
    """The job is over, and what it held is free."""
    store.jobs.finish(epoch, name, JobOutcome("succeeded", now()))
    if store.ledger.held_by(name) is not None:
        store.ledger.release(epoch, name, 1, now())


def settle(store: SqlStore, run: str) -> None:
    """What a process before this one has left, as a new leader does."""
    epoch = leading(store, run)
    for held in store.ledger.claims():
        until_done(f"done {held.job}", lambda held=held: end(store, epoch, held.job))  # type: ignore[misc]


def main(where: str, run: str, count: str) -> int:
    """Work until all is done."""
    try:
        store = open_store(where if "://" in where else Path(where))
        say("open")
        settle(store, run)
        for number in range(int(count)):
            work(store, run, number)
    except StoreUnusableError as error:
        say(f"refused {type(error).__name__} {' '.join(str(error).split())}")
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
