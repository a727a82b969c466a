"""Whose turn it is to be bound: pods of gangs that are begun, then the next gang, so that what is begun is soon whole."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from reconciler.kubernetes.binder.journal import GangBinding, PodBinding, StartJournal
from reconciler.kubernetes.binder.outcomes import Answer, PodOutcome
from reconciler.kubernetes.client.api import AT_ONCE_MAX

PODS_AT_ONCE_MAX: Final = 8 * AT_ONCE_MAX
"""Of gangs that are begun. With half as many, in gangs of 8, 119 of 128 connections were in use on average, with these 124."""


def pods_at_once(qps: float, roll_forward_s: float) -> int:
    """How many pods begun gangs may have, so that at `qps` requests a second they are whole in half of the time they have."""
    return max(1, min(PODS_AT_ONCE_MAX, int(qps * roll_forward_s / 2)))


class Sending:
    """Pods of a start that are to be bound, and what became of them as far as it is known."""

    def __init__(self, of: GangBinding | StartJournal, pods: tuple[PodBinding, ...]) -> None:
        self.of = of
        self.pods = pods
        self._told: dict[int, PodOutcome] = {}

    @property
    def outcomes(self) -> tuple[PodOutcome, ...]:
        """In the order of the pods."""
        return tuple(self._told[number] for number in sorted(self._told))

    @property
    def is_over(self) -> bool:
        """Whether it is known of all."""
        return len(self._told) == len(self.pods)

    def tell(self, number: int, outcome: PodOutcome) -> None:
        """What became of one of the pods."""
        self._told[number] = outcome

    def tell_others(self, answer: Answer, why: str) -> None:
        """The same of all of which nothing was told."""
        for number, pod in enumerate(self.pods):
            self._told.setdefault(number, PodOutcome(pod, answer, why))


Turn = tuple[Sending, int]
"""The number of one of the pods; 0: its start is to be begun."""


class BindingQueue:
    """Starts are begun in their order, each when nothing that is begun waits and there is room for it.

    There is while those under way have no more than `pods_max` pods with it; one that is larger has it alone.
    """

    def __init__(self, waiting: Iterable[Sending], pods_max: int) -> None:
        self._waiting = deque(waiting)
        self._pods_max = pods_max
        self._begun: deque[Turn] = deque()
        self._underway = 0

    def taken(self) -> Turn | None:
        """The next one; None: none before something that is under way is known."""
        if self._begun:
            return self._begun.popleft()
        if not self._waiting:
            return None
        pods = len(self._waiting[0].pods)
        if self._underway and self._underway + pods > self._pods_max:
            return None
        self._underway += pods
        return self._waiting.popleft(), 0

    def follow(self, sending: Sending) -> None:
        """Its other pods may be bound."""
        self._begun.extend((sending, number) for number in range(1, len(sending.pods)))

    def over(self, sending: Sending) -> None:
        """It is under way no more."""
        self._underway -= len(sending.pods)
