"""When an answer is overdue: stated once, for the parent that kills and for the child that outlives its parent."""

from solver.program.optimiser import Effort


def answer_due_s(effort: Effort) -> float:
    """Seconds from the question to the kill: the time limit, a tenth more, and 0.2 s to send arrays about."""
    return effort.time_limit_s * 1.1 + 0.2
