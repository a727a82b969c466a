"""What a time limit means to the caller and to the child that has to answer: stated once, for both sides."""

from solver.milp.optimiser import Effort

STOPS_AT = 0.9
"""The part of its time limit that HiGHS may take, so that what it has found arrives before the wait for it is over."""

LATE_S = 0.1
"""On a busy machine a waiting thread is woken so much too late: the longest that was measured (docs/performance.md)."""


def margin_s(limit_s: float) -> float:
    """Seconds of a round's time limit that its questions leave, so that being woken late does not overrun it."""
    return min(max(0.05 * limit_s, LATE_S), 0.2 * limit_s)


def orphan_ends_after_s(effort: Effort) -> float:
    """Seconds from the question until a child ends itself, if it was not killed: later than any parent would."""
    return effort.time_limit_s * 1.1 + 0.2
