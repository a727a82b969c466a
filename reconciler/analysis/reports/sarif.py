"""Problems as SARIF 2.1.0, which code scanning of several hosts reads.

https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/sarif-v2.1.0-os.html; what GitHub needs of it:
https://docs.github.com/en/code-security/code-scanning/integrating-with-code-scanning/sarif-support-for-code-scanning
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from reconciler.analysis.reports.plain_text import printable
from reconciler.analysis.reports.problems import fingerprints, sentence, worst_first
from reconciler.model.problem import Problem, Severity

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/schemas/sarif-schema-2.1.0.json"
_LEVELS: dict[Severity, str] = {"error": "error", "warning": "warning", "notice": "note"}


def sarif(problems: Iterable[Problem]) -> str:
    """One run with a result for each problem, the worst first, and a rule for each code that occurs."""
    ordered = worst_first(problems)
    codes = sorted({problem.code for problem in ordered})
    driver = {"name": "quorate", "rules": [_rule(code) for code in codes]}
    results = [_result(problem, mark, codes) for problem, mark in zip(ordered, fingerprints(ordered), strict=True)]
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return f"{json.dumps({'$schema': _SCHEMA, 'version': '2.1.0', 'runs': [run]}, indent=2)}\n"


def _rule(code: str) -> dict[str, Any]:
    """GitHub wants all three texts."""
    said = {"text": code.replace("-", " ").capitalize()}
    return {
        "id": code,
        "shortDescription": said,
        "fullDescription": said,
        "help": {"text": "See docs/plan.md and docs/policy.md."},
    }


def _result(problem: Problem, fingerprint: str, codes: list[str]) -> dict[str, Any]:
    return {
        "ruleId": problem.code,
        "ruleIndex": codes.index(problem.code),
        "level": _LEVELS[problem.severity],
        "message": {"text": _message(sentence(problem))},
        "locations": [{"physicalLocation": _location(problem)}],
        "partialFingerprints": {"quorate/v1": fingerprint},
    }


def _location(problem: Problem) -> dict[str, Any]:
    region = {"startLine": problem.line, "startColumn": problem.column}
    return {"artifactLocation": {"uri": _uri(problem.file), "uriBaseId": "%SRCROOT%"}, "region": region}


def _uri(file: str) -> str:
    """Relative to the repository; the repository itself where no file is to blame."""
    return quote(file.lstrip("/"), safe="/", errors="surrogatepass") or "."


def _message(text: str) -> str:
    """Plain text has links of its own in SARIF, `[text](where)` (section 3.11.6): brackets are escaped where one could be."""
    shown = printable(text)
    return shown.replace("[", "\\[").replace("]", "\\]") if "](" in shown else shown
