"""Budgets that YAML must keep before it is built: PyYAML's C composer crashes on deep nesting, and aliases multiply.

Parsing streams events without recursion and is safe on any input; composing is not. So the events are counted first.
"""

from __future__ import annotations

from typing import Any

import yaml

from reconciler.documents.text import place_of
from reconciler.model.problem import InvalidDocumentsError, SourceLocation, problem_at

DEPTH_MAX = 40
"""Documents nest nine deep; a snapshot, twelve."""
NODES_MAX = 200_000
ALIASES_MAX = 100

LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def check_budgets(text: str, file: str, nodes_max: int = NODES_MAX) -> None:
    """Raise InvalidDocumentsError with the first syntax error, tag or broken budget."""
    depth = nodes = aliases = 0
    try:
        for event in yaml.parse(text, Loader=LOADER):
            place = place_of_mark(event.start_mark)
            if isinstance(event, yaml.NodeEvent):
                nodes += 1
            if isinstance(event, yaml.AliasEvent):
                aliases += 1
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            _refuse_excess(file, place, "too-deep", depth, DEPTH_MAX, "levels of nesting")
            _refuse_excess(file, place, "too-many-nodes", nodes, nodes_max, "values in one file")
            _refuse_excess(file, place, "too-many-aliases", aliases, ALIASES_MAX, "aliases in one file")
            tag = getattr(event, "tag", None)
            if tag is not None:
                raise InvalidDocumentsError(
                    [
                        problem_at(
                            file,
                            place,
                            "tag",
                            f"the tag {tag[:60]} is not allowed",
                            "Delete it; quote text that looks like a number.",
                        )
                    ]
                )
    except yaml.YAMLError as error:
        if "nesting depth" in str(getattr(error, "problem", "")):
            # From 6.0.4 on PyYAML ends at 1,000 brackets, and looks ahead as far before it tells of the first.
            _refuse_excess(
                file,
                place_of_mark(getattr(error, "problem_mark", None)),
                "too-deep",
                DEPTH_MAX + 1,
                DEPTH_MAX,
                "levels of nesting",
            )
        raise InvalidDocumentsError([_syntax_problem(text, file, error)]) from None


def place_of_mark(mark: Any) -> SourceLocation:
    """PyYAML counts from 0."""
    return SourceLocation(mark.line + 1, mark.column + 1) if mark is not None else SourceLocation(1, 1)


def _refuse_excess(file: str, place: SourceLocation, code: str, count: int, most: int, what: str) -> None:
    if count > most:
        raise InvalidDocumentsError(
            [problem_at(file, place, code, f"more than {most} {what}", "Make it simpler, or split the file.")]
        )


def _syntax_problem(text: str, file: str, error: yaml.YAMLError) -> Any:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    place = place_of_mark(mark) if mark else place_of(text, len(text))
    lines = text.splitlines()
    line = lines[place.line - 1] if place.line <= len(lines) else ""
    if "\t" in line[: len(line) - len(line.lstrip())]:
        return problem_at(
            file,
            SourceLocation(place.line, line.index("\t") + 1),
            "tab",
            "a tab indents this line",
            "Indent with spaces; YAML allows no tabs.",
        )
    what = getattr(error, "problem", None) or "not readable as YAML"
    context = getattr(error, "context", None)
    return problem_at(
        file, place, "syntax", f"{what} ({context})" if context else what, "Correct the YAML here or on the line above."
    )
