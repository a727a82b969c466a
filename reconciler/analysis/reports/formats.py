"""The formats in which problems are printed for repository hosts and CI systems, by the names of `-o`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from reconciler.analysis.reports.github import github
from reconciler.analysis.reports.gitlab import gitlab
from reconciler.analysis.reports.junit import JunitCase, junit
from reconciler.analysis.reports.problems import sentence, worst_first
from reconciler.analysis.reports.sarif import sarif
from reconciler.model.problem import Problem

FORMATS = ("github", "sarif", "junit", "gitlab")


def problems_as(output: str, name: str, problems: Iterable[Problem]) -> str:
    """Problems in one of `FORMATS`; `name` is what was checked, as JUnit calls its suite."""
    if output == "junit":
        return junit(name, _cases(name, problems))
    return {"github": github, "sarif": sarif, "gitlab": gitlab}[output](problems)


def _cases(name: str, problems: Iterable[Problem]) -> Iterator[JunitCase]:
    """Only errors fail. Where there is no problem at all that is a case too, for CI systems refuse a report without any."""
    ordered = worst_first(problems)
    for problem in ordered:
        place = f"{problem.file}:{problem.line}:{problem.column}" if problem.file else name
        failure = f"{sentence(problem)}\n{place}" if problem.severity == "error" else None
        said = problem.code if failure else f"{problem.severity}[{problem.code}]: {sentence(problem)}"
        yield JunitCase(place, said, failure)
    if not ordered:
        yield JunitCase(name, "no problems", None)
