"""How the code is to read: one sentence for each module, nothing too long, no names that say nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.tracked import CODE, name_of, tracked

MODULE_LINES_MAX = 300
FUNCTION_LINES_MAX = 50
EMPTY_NAMES = {
    "base", "common", "data", "helper", "helpers", "info", "lib", "manager", "managers", "misc", "shared", "stuff", "tools", "util",
    "utilities", "utils",
}  # fmt: skip
"""They say of a module only that somebody did not know what it is for."""

MODULES = tracked(*(f"{folder}/*.py" for folder in CODE))
EVERY_MODULE = tracked("*.py")


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_is_short_enough_to_read(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MODULE_LINES_MAX


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_function_is_short_enough_to_read(path: Path) -> None:
    assert [told for told in _too_long(path)] == []


@pytest.mark.parametrize("path", EVERY_MODULE, ids=name_of)
def test_a_module_says_what_it_is_for_in_one_sentence(path: Path) -> None:
    text = path.read_text()
    if path.name == "__init__.py" and not text:
        return
    first, *more = (ast.get_docstring(ast.parse(text)) or "").splitlines()
    assert first.endswith(".")
    assert not more or not more[0], "the first line stands alone"


@pytest.mark.parametrize("path", EVERY_MODULE, ids=name_of)
def test_a_name_says_something(path: Path) -> None:
    assert not EMPTY_NAMES & {path.stem, *path.parent.parts}


def _too_long(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                yield f"{node.name} has {lines} lines"
