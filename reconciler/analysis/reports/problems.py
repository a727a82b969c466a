"""What all reports of problems share: which come first, how many there are, and by what a host knows one again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from hashlib import sha256

from reconciler.model.problem import Problem, Severity
from solver.plan.reason import count

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "notice")
"""The worst first."""


def worst_first(problems: Iterable[Problem]) -> list[Problem]:
    """By severity, then by place."""
    return sorted(problems, key=lambda problem: (SEVERITIES.index(problem.severity), problem))


def sentence(problem: Problem) -> str:
    """The message and what to do about it."""
    return f"{problem.message}. {problem.fix}".strip()


def tally(problems: Iterable[Problem]) -> str:
    """`2 errors, 1 warning`; notices are named where there are any. `valid` is not for this to say."""
    counted = Counter(problem.severity for problem in problems)
    notices = counted["notice"]
    said = f"{count(counted['error'], 'error')}, {count(counted['warning'], 'warning')}"
    return f"{said}, {count(notices, 'notice')}" if notices else said


def fingerprints(problems: Iterable[Problem]) -> list[str]:
    """For each the same as long as it is the same problem: its line does not count, for lines above it come and go.

    What is twice the same in one file is told apart by its order.
    """
    seen: Counter[tuple[str, str, str]] = Counter()
    found = []
    for problem in problems:
        what = (problem.code, problem.file, problem.message)
        seen[what] += 1
        found.append(sha256("\0".join((*what, str(seen[what]))).encode("utf-8", "surrogatepass")).hexdigest())
    return found
