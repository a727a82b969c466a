"""JUnit XML: what CI systems show as a list of tests, each passed or failed.

There is no standard; this is the common subset that Jenkins, GitLab and GitHub's actions read (github.com/testmoapp/junitxml).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from reconciler.analysis.reports.plain_text import printable


class JunitCase(NamedTuple):
    """One thing that was checked. `failure`: what is wrong, its first line as a headline; None: it passed."""

    classname: str
    name: str
    failure: str | None
    seconds: float | None = None


def junit(name: str, cases: Iterable[JunitCase]) -> str:
    """One suite as an XML document. Characters that XML can't carry are spelled out, as all control characters are."""
    listed = tuple(cases)
    counts = {
        "tests": str(len(listed)),
        "failures": str(sum(case.failure is not None for case in listed)),
        "errors": "0",
    }
    root = Element("testsuites", {"name": printable(name), **counts})
    suite = SubElement(root, "testsuite", {"name": printable(name), **counts, **_time(_total_s(listed))})
    for case in listed:
        _append(suite, case)
    indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(root, encoding="unicode")}\n'


def _append(suite: Element, case: JunitCase) -> None:
    named = {"classname": printable(case.classname), "name": printable(case.name)}
    element = SubElement(suite, "testcase", {**named, **_time(case.seconds)})
    if case.failure is not None:
        said = printable(case.failure)
        SubElement(element, "failure", {"message": said.partition("\n")[0]}).text = said


def _total_s(cases: Iterable[JunitCase]) -> float | None:
    """None where no case was timed."""
    timed = [case.seconds for case in cases if case.seconds is not None]
    return sum(timed) if timed else None


def _time(seconds: float | None) -> dict[str, str]:
    return {} if seconds is None else {"time": f"{seconds:.3f}"}
