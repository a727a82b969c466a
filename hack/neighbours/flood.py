"""What a tenant does that takes all it can get: submissions, lists, streams, logs and huge jobs, from many threads.

A process of its own, or its threads would hold up whoever measures: `python -m hack.neighbours.flood URL NAME`, with the token as
the first line of standard input. Once that ends it prints its counts.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPException
from threading import Event, Thread

import msgspec

from hack.control_plane.plane import Caller, PlaneFailedError, RefusedError, job_document
from hack.control_plane.stages import watched_by
from solver.model.shape import Shape
from solver.model.workload import JobSpec, QueueName, TaskGroup

THREADS_OF_EACH = 6
STREAMS = 50
NOISY = QueueName("noisy")
HUGE_TASKS = 512


class Flood:
    """Until it is over. `counts`: how much of each kind was answered, and by which status the rest was refused (`list429`)."""

    def __init__(self, caller: Caller, name: str) -> None:
        self.counts: Counter[str] = Counter()
        self._caller, self._name, self._over = caller, name, Event()
        self._log = f"/v1/jobs/{name}-logged/logs?group=worker&index=0"
        self._deeds: dict[str, Callable[[random.Random, int], object]] = {
            "submit": self._submit,
            "huge": self._huge,
            "list": lambda _, __: caller.get("/v1/jobs?limit=500"),
            "queues": lambda _, __: caller.get("/v1/queues"),
            "log": lambda _, __: caller.get(self._log),
        }

    def _submit(self, _: random.Random, number: int) -> object:
        spec = JobSpec(NOISY, (TaskGroup("worker", 1, Shape(gpus=1)),), command=("sleep", "2s"))
        return self._caller.post("/v1/jobs", job_document(f"{self._name}-submit-{number}", msgspec.to_builtins(spec)))

    def _huge(self, chance: random.Random, number: int) -> object:
        group = TaskGroup("worker", HUGE_TASKS, Shape(gpus=1), min_replicas=chance.randint(1, 4))
        spec = JobSpec(NOISY, (group,), command=("sleep", "2s"))
        return self._caller.post("/v1/jobs", job_document(f"{self._name}-huge-{number}", msgspec.to_builtins(spec)))

    def begin(self) -> None:
        """Have a job whose log there is to be read."""
        spec = JobSpec(NOISY, (TaskGroup("worker", 1, Shape(gpus=1)),), command=("sleep", "1s"))
        self._caller.post("/v1/jobs", job_document(f"{self._name}-logged", msgspec.to_builtins(spec)))
        while True:
            try:
                self._caller.get(self._log)
            except RefusedError:
                time.sleep(0.05)
            else:
                return

    def run(self, kind: str, thread: int) -> None:
        """One thread of it."""
        chance, number = random.Random(f"{kind} {thread}"), thread * 1_000_000
        while not self._over.is_set():
            number += 1
            try:
                self._deeds[kind](chance, number)
                self.counts[kind] += 1
            except RefusedError as refused:
                self.counts[f"{kind}{refused.status}"] += 1
            except (PlaneFailedError, OSError, HTTPException):
                self.counts[f"{kind}BrokenOff"] += 1

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """While it does."""
        threads = [
            Thread(target=self.run, args=(kind, number), daemon=True)
            for kind in self._deeds
            for number in range(THREADS_OF_EACH)
        ]
        with watched_by(self._caller, STREAMS):
            for thread in threads:
                thread.start()
            try:
                yield
            finally:
                self._over.set()
                for thread in threads:
                    thread.join()


@contextmanager
def flooded(caller: Caller, name: str, counts: Counter[str]) -> Iterator[None]:
    """While a process of its own floods; adds what it did to `counts`."""
    token = caller.headers["Authorization"].removeprefix("Bearer ")
    command = [sys.executable, "-m", "hack.neighbours.flood", caller.url, name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as flood:
        if flood.stdin is None or flood.stdout is None:
            raise RuntimeError("a flood has no pipes")
        flood.stdin.write(f"{token}\n")
        flood.stdin.flush()
        flood.stdout.readline()
        try:
            yield
        finally:
            flood.stdin.close()
            counts.update(json.loads(flood.stdout.read()))


def main(url: str, name: str) -> None:
    """Flood until standard input ends."""
    flood = Flood(Caller(url, sys.stdin.readline().strip()), name)
    flood.begin()
    with flood.going_on():
        while not flood.counts:
            time.sleep(0.05)
        sys.stdout.write("begun\n")
        sys.stdout.flush()
        sys.stdin.read()
    sys.stdout.write(json.dumps(flood.counts))


if __name__ == "__main__":
    main(*sys.argv[1:])
