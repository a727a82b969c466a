"""Threads that work for one process: the first that fails ends them all, and one that misses the store begins anew."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Final

from structlog.typing import FilteringBoundLogger

from reconciler.protocols.store_errors import StoreUnreachableError
from reconciler.server.parts import ServerThread

AGAIN_AFTER_S: Final = 1.0


class Crew:
    """Start members, then `wait`; in the end `join`."""

    def __init__(self) -> None:
        self._threads: list[Thread] = []
        self._failures: list[BaseException] = []
        # Of all things to wait for, the one that a signal handler may touch while its own thread waits for it.
        self._over: SimpleQueue[None] = SimpleQueue()

    def start(self, name: str, work: Callable[[], None]) -> None:
        """Run `work` in a thread. It is to run until it is told to stop; should it raise, `wait` or `join` raise the same."""

        def run() -> None:
            try:
                work()
            except BaseException as failure:  # noqa: BLE001  (raised again in the main thread)
                self._failures.append(failure)
                self.dismiss()

        # Not to be waited for by the interpreter: a process that can't stop in order must still be able to end.
        thread = Thread(target=run, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def dismiss(self) -> None:
        """End `wait`. Signal handlers and threads may call it."""
        self._over.put(None)

    def wait(self, well: Callable[[], bool], look_every_s: float = 1.0) -> None:
        """Until dismissed, until a member fails, or until `well`, looked at now and then, is False."""
        while well():
            with suppress(Empty):
                self._over.get(timeout=look_every_s)
                return

    def join(self) -> None:
        """Wait for every member to return, once each has been told to. Raises what the first to fail raised."""
        for thread in self._threads:
            thread.join()
        if self._failures:
            raise self._failures[0]


@contextmanager
def told_by_signals(tell: Callable[[], None]) -> Iterator[None]:
    """SIGTERM and SIGINT tell; after the block, and so while the parts stop, another one ends the process at once."""
    before = {number: signal.signal(number, lambda *_: tell()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def with_restarts(
    member: ServerThread, log: FilteringBoundLogger, rest: Callable[[float], None] = time.sleep
) -> Callable[[], None]:
    """What to run in place of `member.run`: the same, again and again until it returns or fails for another reason."""

    def run() -> None:
        while True:
            try:
                member.run()
            except StoreUnreachableError as error:
                # The loop meets the same and tells the log; here it is one line of many.
                log.debug("store-unreachable", thread=member.name, message=str(error))
                rest(AGAIN_AFTER_S)
            else:
                return

    return run
