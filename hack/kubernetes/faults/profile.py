"""What befalls which request: drawn from a seed and the request itself, not from the order in which requests happen to come."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Literal, NamedTuple

Fault = Literal[
    "delay", "drop-before", "drop-after", "late", "conflict", "busy", "broken", "unavailable", "garbage", "stale",
    "watch-cut", "watch-held", "watch-garbage", "late-binding", "blind-binding",
]  # fmt: skip
"""`drop-before`: it never reaches the server. `drop-after`: it was done, and nobody says so. `late`: the connection breaks, and it
is done seconds later all the same. `conflict` to `unavailable`: 409, 429, 500, 503, and it was not done. `garbage`: it was done,
and the answer is none. `stale`: a list as it was seconds ago. `watch-held`: events come late, in their order.
`blind-binding`: it is done late, and from then on the watches of who asked are held back."""


class Profile(NamedTuple):
    """Of a hundred requests, how many each fault befalls; of `watch_` a hundred blocks of a watch."""

    name: str
    delay: float = 0
    drop_before: float = 0
    drop_after: float = 0
    late: float = 0
    conflict: float = 0
    busy: float = 0
    broken: float = 0
    unavailable: float = 0
    garbage: float = 0
    stale: float = 0
    watch_cut: float = 0
    watch_held: float = 0
    watch_garbage: float = 0
    late_binding: float = 0
    blind_binding: float = 0


HONEST = Profile("honest")
PROFILES = (
    Profile("slow", delay=50, watch_held=30),
    Profile("lossy", delay=10, drop_before=10, drop_after=12, late=12, watch_cut=5),
    Profile("refusing", conflict=12, busy=12, broken=10, unavailable=10),
    Profile("deaf", drop_after=5, stale=60, watch_cut=15, watch_held=35, watch_garbage=2),
    Profile("limbo", delay=5, late_binding=50, blind_binding=20, watch_held=10),
    Profile("babbling", drop_after=6, garbage=8, broken=6, watch_garbage=4),
    Profile(
        "all", delay=10, drop_before=5, drop_after=6, late=6, conflict=5, busy=5, broken=4, unavailable=4, garbage=2, stale=35,
        watch_cut=5, watch_held=15, watch_garbage=1,
    ),
)  # fmt: skip

OF_WATCHES: tuple[Fault, ...] = ("watch-cut", "watch-held", "watch-garbage")
OF_BINDINGS: tuple[Fault, ...] = ("late-binding", "blind-binding")
OF_LISTS: tuple[Fault, ...] = ("stale",)
OF_ALL: tuple[Fault, ...] = (
    "delay", "drop-before", "drop-after", "late", "conflict", "busy", "broken", "unavailable", "garbage",
)  # fmt: skip


class Drawn(NamedTuple):
    """A fault, and how long it takes, where that is a question."""

    fault: Fault
    seconds: float


class Draw:
    """Draws for one seed. The n-th time that somebody asks for the same always meets the same."""

    def __init__(self, seed: int, longest_s: float) -> None:
        self._seed = seed
        self._longest_s = longest_s
        self._times: Counter[str] = Counter()

    def __call__(self, profile: Profile, among: tuple[Fault, ...], what: str) -> Drawn | None:
        """What befalls this, None: nothing."""
        self._times[what] += 1
        chance = Random(f"{self._seed} {what} {self._times[what]}")
        drawn = chance.random() * 100
        for fault in among:
            drawn -= getattr(profile, fault.replace("-", "_"))
            if drawn < 0:
                # Most are short; the longest is as long as faults may last.
                return Drawn(fault, self._longest_s * chance.random() ** 3)
        return None
