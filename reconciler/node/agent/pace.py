"""When an agent beats, and how long it rests before it tries to connect again: pure, from numbers drawn elsewhere."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AgentPace:
    """All in seconds. `look_s`: between two looks at what tasks do. `rest_max_s`: the longest rest between two tries to connect."""

    beat_s: float = 5.0
    look_s: float = 0.25
    rest_first_s: float = 0.5
    rest_max_s: float = 15.0
    connect_within_s: float = 10.0
    ping_s: float = 10.0
    close_within_s: float = 1.0

    def until_first_beat_s(self, drawn: float) -> float:
        """Anywhere in `beat_s`: agents that a control plane finds again all at once are spread evenly from the beginning.

        By `until_beat_s` alone that would take them a dozen beats. `drawn`: in [0, 1).
        """
        return self.beat_s * drawn

    def until_beat_s(self, drawn: float) -> float:
        """A fifth more or less than `beat_s`, so that agents which began together don't beat together. `drawn`: in [0, 1)."""
        return self.beat_s * (0.8 + 0.4 * drawn)

    def rest_s(self, failures: int, drawn: float) -> float:
        """Up to twice as long with each failure, and anything below that: all agents lose a control plane at once.

        Full jitter (M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015). `drawn`: in [0, 1).
        """
        # 2**30 s is beyond any rest, and a float has no trouble with it.
        return drawn * min(self.rest_max_s, self.rest_first_s * 2.0 ** min(failures, 30))
