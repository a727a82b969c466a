"""What a time limit means to the child that has to answer: stated once, for both sides."""

from solver.program.optimiser import Effort

STOPS_AT = 0.85
"""The part of its time limit that HiGHS may take, so that what it has found arrives before nobody waits for it any more."""

GIVEN_UP_AT = 0.95
"""The part after which the child is killed: on a busy machine whoever waits is not woken at once."""


def orphan_ends_after_s(effort: Effort) -> float:
    """Seconds from the question until a child ends itself, if nobody has killed it: later than any parent would."""
    return effort.time_limit_s * 1.1 + 0.2
