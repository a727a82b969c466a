"""Judges jobs that a plan ends though no policy could allow it, or in a way that none could. Part of the checker."""

from __future__ import annotations

from collections.abc import Iterator

from solver.checker.case import JudgedPlan
from solver.plan.violation import Violation


def leave_violations(case: JudgedPlan) -> Iterator[Violation]:
    """S4: no job leaves that may not; none moves that nothing can be promised to. Tasks that never began may always go."""
    for step in case.leaving:
        job = case.jobs[step.job]
        said, held = job.leaves, job.held_by if job.leaves == "not" else ""
        if step.past != held:
            yield Violation("S4", step.job, f"passes over {step.past or 'nothing'}, and is held by {held or 'nothing'}")
        # Whether its guarantee has waited for long enough is judged with what protects jobs for a while.
        if said == "not" and not (held and step.beneficiary and step.means != "move"):
            yield Violation("S4", step.job, "may not be evicted now, for a reason that is not the policy's")
        elif said == "unpromised" and step.means == "move":
            yield Violation("S4", step.job, "may not be moved: what it is promised ends with its tasks")
