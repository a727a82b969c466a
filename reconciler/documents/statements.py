"""What is wrong with the statements of a PolicyTest: subjects and details that don't go with what must hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import fields

from reconciler.documents.declarations import Declaration
from reconciler.documents.policy_test import DETAILS, REASON_CODES, SUBJECTS, GivenJob, PolicyTest, Statement
from reconciler.model.problem import Path, Problem, did_you_mean
from solver.model.workload import JobName

_WRITTEN = {field.name: field.encode_name for field in fields(Statement)}
_OF_QUEUES = ("hold", "have-share")
_NEEDED = {"keep": ("at_least",), "hold": ("at_least", "at_most"), "have-share": ("share",)}
"""One of these must be said, or nothing is."""


def statement_problems(
    test: Declaration[PolicyTest], at: Path, statement: Statement, jobs: Mapping[JobName, GivenJob]
) -> Iterator[Problem]:
    """Everything that can be said of one without the rest of the repository."""
    said = [name for name in _WRITTEN if name != "must" and getattr(statement, name) is not None]
    yield from _subject_problems(test, at, statement, [name for name in said if name in SUBJECTS])
    for name in said:
        if name not in SUBJECTS and name not in DETAILS[statement.must]:
            known = " and ".join(_WRITTEN[detail] for detail in DETAILS[statement.must]) or "nothing"
            message = f"{_WRITTEN[name]} says nothing beside must: {statement.must}"
            yield test.problem((*at, _WRITTEN[name]), "detail-unused", message, f"With it go: {known}.")
    needed = _NEEDED.get(statement.must, ())
    if needed and not set(needed) & set(said):
        words = " or ".join(_WRITTEN[name] for name in needed)
        yield test.problem((*at, "must"), "missing-field", f"{statement.must} needs {words}", f"Add {words}.")
    for name in ("job", "before", "beneficiary"):
        written = getattr(statement, name)
        if written is not None and written not in jobs:
            fix = did_you_mean(written, jobs)
            yield test.problem((*at, name), "unknown-job", f"the test has no job {written}", fix)
    if statement.because is not None and statement.because not in REASON_CODES:
        fix = did_you_mean(statement.because, REASON_CODES) or "docs/reasons.md lists them."
        message = f"there is no reason {statement.because}"
        yield test.problem((*at, "because"), "unknown-reason", message, fix)
    runs = statement.job is not None and statement.job in jobs and jobs[statement.job].running is not None
    if runs and statement.must in ("start", "wait", "be-inadmissible"):
        message = f"{statement.job} runs already when the test begins"
        yield test.problem((*at, "must"), "runs-already", message, "Say stay, leave, shrink or keep.")


def _subject_problems(
    test: Declaration[PolicyTest], at: Path, statement: Statement, subjects: list[str]
) -> Iterator[Problem]:
    if len(subjects) > 1:
        words = " and ".join(_WRITTEN[name] for name in subjects)
        yield test.problem((*at, _WRITTEN[subjects[1]]), "choose-one", f"it is about {words}", "Keep one of them.")
    elif statement.must in _OF_QUEUES and subjects != ["queue"]:
        message = f"only a queue can be said to {statement.must}"
        yield test.problem((*at, "must"), "of-queues", message, "Add queue; of jobs, keep says what they hold.")
