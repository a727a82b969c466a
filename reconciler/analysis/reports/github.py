"""Problems as GitHub's workflow commands: annotations on the lines of a pull request.

https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from reconciler.analysis.reports.plain_text import printable
from reconciler.analysis.reports.problems import sentence, tally, worst_first
from reconciler.model.problem import Problem

SHOWN_MAX = 10
"""Of each severity: GitHub shows ten of a step, and drops the rest without a word."""


def github(problems: Iterable[Problem]) -> str:
    """A command a line, the worst first; then a line for the log that counts them, and those that are not shown."""
    ordered = worst_first(problems)
    counted: Counter[str] = Counter()
    lines = []
    for problem in ordered:
        counted[problem.severity] += 1
        if counted[problem.severity] <= SHOWN_MAX:
            lines.append(_command(problem))
    left = len(ordered) - len(lines)
    more = f"; {left} of them without an annotation: GitHub shows {SHOWN_MAX} of each kind" if left else ""
    return "".join(f"{line}\n" for line in (*lines, f"{tally(ordered)}{more}"))


def _command(problem: Problem) -> str:
    place = {"file": problem.file, "line": str(problem.line), "col": str(problem.column)} if problem.file else {}
    properties = place | {"title": problem.code}
    listed = ",".join(f"{key}={_escaped(value, also=':,')}" for key, value in properties.items())
    return f"::{problem.severity} {listed}::{_escaped(sentence(problem))}"


def _escaped(text: str, also: str = "") -> str:
    """As GitHub wants it: line ends and the percent sign everywhere, separators in properties too."""
    return "".join(f"%{ord(char):02X}" if char in "%\r\n" + also else char for char in printable(text))
