"""How the code is to read: one sentence for each module, no function too long, no names that say nothing."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

import networkx as nx
import pytest

import solver
from tests.house.tracked import ROOT, objections, tracked

CODE = ("quorate/*.py", "solver/*.py", "reconciler/*.py", "hack/*.py")
FUNCTION_LINES_MAX = 50
EMPTY_NAMES = {
    "base", "common", "data", "helper", "helpers", "info", "lib", "manager", "managers", "misc", "shared", "stuff", "tools", "util",
    "utilities", "utils",
}  # fmt: skip
"""They say of a module only that somebody did not know what it is for."""

NO_NOUNS = {
    "at_once", "beside", "between", "compare", "enough", "free", "held", "kept", "killable", "plain", "seen", "serve", "silent",
    "spawn", "together", "told",
}  # fmt: skip
NOUNS_IN_ING = {
    "binding", "borrowing", "counting", "fencing", "keyring", "lending", "masking", "meaning", "ordering",
    "packing", "partitioning", "pruning", "recording", "sharing",
}  # fmt: skip
"""Things and fields of work. Others that end so say what somebody is doing: watching, telling, executing."""
UNTIL_GUARANTEES_ARE_ANEW = {"solver/preemption/unserved.py", "solver/quota/vacated.py"}
"""Modules that the rules on guarantees will replace: they need no other names before."""


def test_functions_are_short_enough_to_read() -> None:
    def too_long(path: Path) -> list[str]:
        return [
            f"{node.name} has {lines} lines"
            for node in ast.walk(_parsed(path))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES_MAX
        ]

    assert objections(tracked(*CODE), too_long) == {}


def test_every_module_says_what_it_is_for_in_one_sentence() -> None:
    def unsaid(path: Path) -> str:
        text = path.read_text()
        if path.name == "__init__.py" and not text:
            return ""
        docstring = text.removeprefix('"""').partition('"""')[0] if text.startswith('"""') else ""
        lines = [*docstring.splitlines(), "", ""]
        return "" if lines[0].endswith(".") and not lines[1] else f"begins with {lines[0]!r}"

    assert objections(tracked("*.py"), unsaid) == {}


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Nor for types alone: what knows each other is one module, or one of them knows too much."""
    imports: nx.DiGraph[str] = nx.DiGraph()
    modules = {_module(path): path for path in tracked("quorate/*.py", "solver/*.py", "reconciler/*.py")}
    for name, path in modules.items():
        for node in ast.walk(_parsed(path)):
            if isinstance(node, ast.ImportFrom) and node.module:
                whole = (f"{node.module}.{each.name}" for each in node.names)
                imports.add_edges_from((name, each if each in modules else node.module) for each in whole)
    assert [sorted(circle) for circle in nx.strongly_connected_components(imports) if len(circle) > 1] == []


def test_names_of_modules_say_something() -> None:
    def empty(path: Path) -> set[str]:
        return EMPTY_NAMES & {path.stem, *path.relative_to(ROOT).parts[:-1]}

    assert objections(tracked("*.py"), empty) == {}


def test_modules_are_called_by_nouns() -> None:
    """As far as words and endings tell: no participles, adverbs or verbs. Commands are verbs, and stand in `cli`."""

    def no_noun(path: Path) -> bool:
        if str(path.relative_to(ROOT)) in UNTIL_GUARANTEES_ARE_ANEW:
            return False
        last = path.stem.rpartition("_")[2]
        doing = last.endswith("ing") and last not in NOUNS_IN_ING
        return path.stem in NO_NOUNS or path.stem.endswith(("ed", "ly")) or doing

    assert objections(tracked("solver/*.py", "reconciler/*.py"), no_noun) == {}


def test_the_front_door_of_the_solver_opens() -> None:
    assert {name: getattr(solver, name).__name__ for name in solver.__all__} == {
        "Replay": "Replay",
        "check": "violations",
        "solve": "solve",
    }
    with pytest.raises(AttributeError, match="nothing"):
        _ = solver.nothing


def test_one_public_class_name_means_one_class() -> None:
    where = defaultdict(list)
    for path in tracked("quorate/*.py", "solver/*.py", "reconciler/*.py"):
        for node in _parsed(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                where[node.name].append(str(path.relative_to(ROOT)))
    assert {name: places for name, places in where.items() if len(places) > 1} == {}


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def _module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
