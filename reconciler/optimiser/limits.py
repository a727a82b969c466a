"""What a time limit means to the child that has to answer: stated once, for both sides."""

from solver.program.optimiser import Effort

STOPS_AT = 0.9
"""The part of its time limit that HiGHS may take, so that what it has found arrives before the kill at the limit."""


def orphan_ends_after_s(effort: Effort) -> float:
    """Seconds from the question until a child ends itself, if nobody has killed it: later than any parent would."""
    return effort.time_limit_s * 1.1 + 0.2
