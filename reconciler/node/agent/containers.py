"""Knows whether a node runs containers, so that none is placed where none runs."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread
from typing import Final

import msgspec

from reconciler.model.facts import NodeFacts
from reconciler.node.agent.hardware import Read
from reconciler.node.local.runtimes import NoContainersError, Runtime
from solver.model.quantities import Instant

ASKED_EVERY_S: Final = 60.0


class ContainerWatch:
    """`find` is asked at the `start`, and from then on by a thread until it finds what runs them: it may be installed later.

    It may take a minute to say that something is there and does not work, for which no order should have to wait.
    """

    def __init__(self, find: Callable[[], Runtime], every_s: float = ASKED_EVERY_S) -> None:
        self._find = find
        self._every_s = every_s
        self._stopped = Event()
        self._thread = Thread(target=self._ask_again, name="containers", daemon=True)
        self.runs_containers = False

    def start(self) -> None:
        """Ask for the first time."""
        self._ask()
        self._thread.start()

    def stop(self) -> None:
        """Ask no more; returns once the thread has ended."""
        self._stopped.set()
        self._thread.join()

    def added_to(self, read: Read) -> Read:
        """What `read` tells of the node, and whether it runs containers."""

        def both(at: Instant) -> NodeFacts | None:
            facts = read(at)
            return None if facts is None else msgspec.structs.replace(facts, containers=self.runs_containers)

        return both

    def _ask(self) -> None:
        try:
            self._find()
        except NoContainersError:
            return
        self.runs_containers = True

    def _ask_again(self) -> None:
        while not self.runs_containers and not self._stopped.wait(self._every_s):
            self._ask()
