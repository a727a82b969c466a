"""Problems as GitLab's Code Quality report: https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format."""

from __future__ import annotations

import json
from collections.abc import Iterable

from reconciler.analysis.reports.plain_text import printable
from reconciler.analysis.reports.problems import fingerprints, sentence, worst_first
from reconciler.model.problem import Problem, Severity

_SEVERITIES: dict[Severity, str] = {"error": "major", "warning": "minor", "notice": "info"}


def gitlab(problems: Iterable[Problem]) -> str:
    """A JSON array, the worst first."""
    ordered = worst_first(problems)
    entries = [
        {
            "description": printable(sentence(problem)),
            "check_name": problem.code,
            "fingerprint": fingerprint,
            "severity": _SEVERITIES[problem.severity],
            "location": {"path": problem.file or ".", "lines": {"begin": problem.line}},
        }
        for problem, fingerprint in zip(ordered, fingerprints(ordered), strict=True)
    ]
    return f"{json.dumps(entries, indent=2)}\n"
