"""Which asker asked what, so that only those ask again for which the answer would be another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

Q = TypeVar("Q", bound=Hashable)
W = TypeVar("W", bound=Hashable)


class DependencyIndex(Generic[W, Q]):
    """Questions, each with the askers of it, as of their last time."""

    def __init__(self) -> None:
        self._askers: dict[Q, set[W]] = defaultdict(set)
        self._of: dict[W, frozenset[Q]] = {}
        self._asking: set[Q] = set()
        self.stale: set[W] = set()
        """Askers for which an answer has become another since they asked."""
        self._idle: set[Q] = set()

    def note(self, question: Q) -> None:
        """The present asker has asked that."""
        self._asking.add(question)

    def changed(self, question: Q) -> bool:
        """The answer is another; whether any asker went by it."""
        askers = self._askers.get(question, set())
        self.stale |= askers
        return bool(askers)

    def dropped(self) -> set[Q]:
        """Questions that are not asked any more, each said once: the answers need not be kept."""
        idle, self._idle = self._idle, set()
        return idle

    @contextmanager
    def by(self, who: W) -> Iterator[None]:
        """Within the block `who` asks: that, and nothing else, is what it goes by."""
        self._asking = set()
        yield
        self._settle(who, frozenset(self._asking))
        self.stale.discard(who)

    def leave(self, who: W) -> None:
        """It is not there any more."""
        self._settle(who, frozenset())
        self.stale.discard(who)

    def _settle(self, who: W, questions: frozenset[Q]) -> None:
        before = self._of.pop(who, frozenset())
        if questions:
            self._of[who] = questions
        for question in questions - before:
            self._askers[question].add(who)
            self._idle.discard(question)
        for question in before - questions:
            self._askers[question].discard(who)
            if not self._askers[question]:
                del self._askers[question]
                self._idle.add(question)
