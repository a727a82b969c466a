"""What stands in the way of a release: its place, the problem and the fix."""

from __future__ import annotations


class ProblemError(Exception):
    """One thing to mend."""

    def __init__(self, place: str, problem: str, fix: str) -> None:
        super().__init__(f"{place}: {problem}. {fix}")
        self.place, self.problem, self.fix = place, problem, fix
