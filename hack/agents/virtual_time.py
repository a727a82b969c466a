"""An event loop whose time passes only while nothing is to be done: hours take seconds, and are the same every time."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, ParamSpec, TypeVar

from reconciler.model.clock import SIMULATION_START
from solver.model.quantities import Instant

P = ParamSpec("P")
T = TypeVar("T")

LOOK_S: Final = 0.05
"""How often it is looked whether what is waited for has come about."""


class _Selector(selectors.DefaultSelector):
    """Where a selector would wait, time passes at once."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if not found and timeout is None:
            raise RuntimeError("nothing is to come any more")
        if not found and timeout:
            self.loop.passed_s += timeout
        return found


class VirtualLoop(asyncio.SelectorEventLoop):
    """Run it with `let_pass` and `until`."""

    def __init__(self) -> None:
        self.passed_s = 0.0
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)
        # What a connection that has gone leaves behind is told by what it leads to, or not at all.
        self.set_exception_handler(lambda _loop, _context: None)
        self.set_default_executor(AtOnce())

    def time(self) -> float:
        """Virtual seconds since it was made."""
        return self.passed_s

    def let_pass(self, span_s: float) -> None:
        """Let what is due within a span happen."""
        self.run_until_complete(asyncio.sleep(span_s))

    def until(self, reached: Callable[[], bool], within_s: float) -> bool:
        """Let time pass until something is so, for so long at most."""
        end_s = self.passed_s + within_s
        while not reached() and self.passed_s < end_s:
            self.let_pass(LOOK_S)
        return reached()

    def close(self) -> None:
        """With all that goes on in it."""
        going_on = asyncio.all_tasks(self)
        for task in going_on:
            task.cancel()
        if going_on:
            self.run_until_complete(asyncio.gather(*going_on, return_exceptions=True))
        super().close()


class LoopClock:
    """Implements Clock: that of the world, which nobody sets."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def now(self) -> Instant:
        """The true time."""
        return SIMULATION_START.after(int(self._loop.passed_s * 1_000))

    def monotonic_s(self) -> float:
        """Virtual seconds since the beginning."""
        return self._loop.passed_s


class AtOnce(ThreadPoolExecutor):
    """Does what it is given where it is given it, so that nothing depends on how threads take turns."""

    def submit(self, work: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> Future[T]:
        """It is done when this returns."""
        done: Future[T] = Future()
        try:
            done.set_result(work(*arguments, **named))
        except BaseException as error:  # noqa: BLE001  (it is raised where the result is asked for)
            done.set_exception(error)
        return done


class Silence:
    """A log that nobody reads."""

    def __getattr__(self, _: str) -> Callable[..., None]:
        return lambda *_arguments, **_named: None

    def bind(self, **_: Mapping[str, Any]) -> Silence:
        """Itself."""
        return self
