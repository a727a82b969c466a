"""What every control plane is made of for the process that runs it, whatever it runs jobs on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from reconciler.api.services import Services
from reconciler.store.store import SqlStore


class ServerThread(NamedTuple):
    """A thread: `run` until `stop` is called, from another."""

    name: str
    run: Callable[[], None]
    stop: Callable[[], None]


class Worker(Protocol):
    """What a thread runs."""

    def run(self) -> None:
        """Work until stopped."""

    def stop(self) -> None:
        """Let `run` return; from any thread."""


def threads_of(workers: Mapping[str, Worker]) -> Iterator[ServerThread]:
    """Each as a thread of that name."""
    return (ServerThread(name, worker.run, worker.stop) for name, worker in workers.items())


@dataclass(frozen=True, slots=True)
class Parts:
    """What the API is told, the working threads, and the store that ends them if it fails. `ending`: what the log says of jobs."""

    services: Services
    members: tuple[ServerThread, ...]
    store: SqlStore
    ending: str
