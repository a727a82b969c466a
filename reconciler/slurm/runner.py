"""Looks at a Slurm cluster at an interval, and decides a round of each look."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from threading import Event

from reconciler.control.clock_steps import ClockSteps
from reconciler.control.loop import take_pass
from reconciler.control.runner import INTERRUPTIONS, LoopStatus, status_after
from reconciler.protocols.backend import BackendUnreachableError
from reconciler.protocols.store_errors import StoreUnusableError
from reconciler.slurm.look import SlurmLook
from reconciler.slurm.site import SlurmPlane, SlurmSite


class SlurmRunner:
    """Call `run` in a thread of its own; `wake`, `stop`, `status` and `seen` from any. `every_s`: how far apart looks begin."""

    def __init__(
        self, plane: SlurmPlane, every_s: float, report: Callable[[LoopStatus], None] = lambda _: None
    ) -> None:
        self.status = LoopStatus()
        self.seen = SlurmLook()
        self._plane = plane
        self._every_s = every_s
        self._report = report
        self._steps = ClockSteps(plane.clock)
        self._woken = Event()
        self._stopping = False

    def wake(self) -> None:
        """Something happened that a pass should see soon: a commit, a word by hand."""
        self._woken.set()

    def stop(self) -> None:
        """Let `run` return after the pass that is under way; a command that hangs is ended."""
        self._stopping = True
        self._plane.cluster.commands.stop()
        self.wake()

    def run(self) -> None:
        """Take passes until stopped, then write and say what was seen. Raises StoreUnusableError: a person has to act."""
        try:
            while not self._stopping:
                began_s = self._plane.clock.monotonic_s()
                self.one_pass()
                self._woken.wait(max(0.0, began_s + self._every_s - self._plane.clock.monotonic_s()))
                self._woken.clear()
        finally:
            self._plane.observer.save()
        self._plane.observer.say_result()
        self.status = replace(self.status, condition="ended", message="")

    def one_pass(self) -> None:
        """Look once, and decide. A look that fails is counted and said, and the next one begins anew. Raises StoreUnusableError."""
        site = SlurmSite(self._plane, round(self._steps.look_s() * 1_000))
        try:
            done, look = asyncio.run(take_pass(site))
        except INTERRUPTIONS as error:
            if self._stopping:
                return
            if isinstance(error, BackendUnreachableError):
                self._plane.observer.fail(str(error))
            self.status = status_after(self.status, error)
        except StoreUnusableError as error:
            self.status = replace(self.status, condition="store-unusable", message=str(error))
            raise
        else:
            self.seen = look.seen
            self.status = LoopStatus("observing", done.fault, done)
        self._report(self.status)
