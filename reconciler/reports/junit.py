"""JUnit XML: what CI systems show as a list of tests, each passed or failed.

There is no standard; this is the common subset that Jenkins, GitLab and GitHub's actions read (github.com/testmoapp/junitxml).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple
from xml.etree.ElementTree import Element, SubElement, indent, tostring

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 can't carry, not even escaped (https://www.w3.org/TR/xml/#charsets)."""


class Case(NamedTuple):
    """One thing that was checked. `failure`: what is wrong, its first line as a headline; None: it passed."""

    classname: str
    name: str
    failure: str | None
    seconds: float | None = None


def junit(name: str, cases: Iterable[Case]) -> str:
    """One suite as an XML document. Characters that XML can't carry are left out."""
    listed = tuple(cases)
    counts = {
        "tests": str(len(listed)),
        "failures": str(sum(case.failure is not None for case in listed)),
        "errors": "0",
    }
    root = Element("testsuites", {"name": _carried(name), **counts})
    suite = SubElement(root, "testsuite", {"name": _carried(name), **counts, **_time(_total_s(listed))})
    for case in listed:
        _append(suite, case)
    indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(root, encoding="unicode")}\n'


def _append(suite: Element, case: Case) -> None:
    named = {"classname": _carried(case.classname), "name": _carried(case.name)}
    element = SubElement(suite, "testcase", {**named, **_time(case.seconds)})
    if case.failure is not None:
        said = _carried(case.failure)
        SubElement(element, "failure", {"message": said.partition("\n")[0]}).text = said


def _total_s(cases: Iterable[Case]) -> float | None:
    """None where no case was timed."""
    timed = [case.seconds for case in cases if case.seconds is not None]
    return sum(timed) if timed else None


def _time(seconds: float | None) -> dict[str, str]:
    return {} if seconds is None else {"time": f"{seconds:.3f}"}


def _carried(text: str) -> str:
    return _NOT_XML.sub("", text)
