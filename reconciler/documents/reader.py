"""YAML files to plain values that remember where every key and value stands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NoReturn

import yaml

from reconciler.documents.guard import LOADER, NODES_MAX, check_budgets, place_of_mark
from reconciler.documents.scalars import ScalarError, plain_value
from reconciler.documents.text import BYTES_MAX, decode_text
from reconciler.model.problem import InvalidDocumentsError, Path, Problem, SourceLocation, problem_at, shown


@dataclass(frozen=True)
class Located:
    """One YAML document: its value, and the places of its values and of its keys by path."""

    value: Any
    places: dict[Path, SourceLocation]
    key_places: dict[Path, SourceLocation]

    def place(self, path: Path) -> SourceLocation:
        """Where the value at a path stands; where there is none, the nearest value around it."""
        while path not in self.places and path:
            path = path[:-1]
        return self.places.get(path, SourceLocation(1, 1))

    def key_place(self, path: Path) -> SourceLocation:
        """Where the key at the end of a path stands; for a list item, where the item stands."""
        return self.key_places.get(path) or self.place(path)


def read_yaml(raw: bytes, file: str, bytes_max: int = BYTES_MAX, nodes_max: int = NODES_MAX) -> tuple[Located, ...]:
    """Every document of a file that is not empty; raises InvalidDocumentsError with all problems found."""
    text = decode_text(raw, file, bytes_max)
    check_budgets(text, file, nodes_max)
    documents = []
    problems: list[Problem] = []
    try:
        for node in yaml.compose_all(text, Loader=LOADER):
            builder = _Builder(file)
            value = builder.build(node, ())
            problems += builder.problems
            if value is not None:
                documents.append(Located(value, builder.places, builder.key_places))
    except yaml.YAMLError as error:
        # The syntax is known to be good; what is left is an alias to an anchor that does not exist.
        mark = getattr(error, "problem_mark", None)
        message = str(getattr(error, "problem", None) or error)
        problems.append(
            problem_at(
                file,
                place_of_mark(mark),
                "alias",
                message,
                "Define the anchor before its alias, or write the value out.",
            )
        )
    if problems:
        raise InvalidDocumentsError(problems)
    return tuple(documents)


class _EndlessError(Exception):
    """Aliases make the document larger than any budget; the problem is noted."""


@dataclass
class _Builder:
    file: str
    places: dict[Path, SourceLocation] = field(default_factory=dict)
    key_places: dict[Path, SourceLocation] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    _open: set[int] = field(default_factory=set)

    def build(self, node: yaml.Node, path: Path) -> Any:
        """The value of a whole document; what can't be built is noted as a problem."""
        try:
            return self._value(node, path)
        except _EndlessError:
            return None

    def _value(self, node: yaml.Node, path: Path) -> Any:
        if len(self.places) >= NODES_MAX:
            self._stop(node, f"with its aliases written out the document has more than {NODES_MAX} values")
        self.places[path] = place_of_mark(node.start_mark)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        if id(node) in self._open:
            self._stop(node, "an anchor contains its own alias")
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.SequenceNode):
                return [self._value(item, (*path, index)) for index, item in enumerate(node.value)]
            return self._mapping(node, path)
        finally:
            self._open.discard(id(node))

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        if "\0" in node.value:
            self._note(node, "nul", "text can't have a NUL character: no program can be given one", "Leave it out.")
            return ""
        if node.style:  # quoted, or a block: text
            return node.value
        try:
            return plain_value(node.value)
        except ScalarError as error:
            self._note(node, "number", str(error), "Write a smaller number, or quote it where text is meant.")
            return 0

    def _mapping(self, node: yaml.Node, path: Path) -> dict[str, Any]:
        built: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = self._key(key_node)
            if key is None:
                continue
            if key in built:
                first = self.key_places[*path, key].line
                self._note(
                    key_node,
                    "duplicate-key",
                    f"the key {shown(key)} occurs twice, first on line {first}",
                    "Keep one of them." if path else "Keep one of them, or put --- between two documents.",
                )
                continue
            self.key_places[*path, key] = place_of_mark(key_node.start_mark)
            built[key] = self._value(value_node, (*path, key))
        return built

    def _key(self, node: yaml.Node) -> str | None:
        if not isinstance(node, yaml.ScalarNode):
            self._note(
                node, "key", "a key must be text, not a list or a mapping", "Write a single word before the colon."
            )
            return None
        key = self._scalar(node)
        if not node.style and key == "<<":
            self._note(node, "merge-key", "merge keys are not part of YAML 1.2", "Write the merged fields out.")
            return None
        if not isinstance(key, str):
            self._note(node, "key", f"a key must be text, this is {shown(key)}", "Quote it.")
            return None
        return key

    def _stop(self, node: yaml.Node, message: str) -> NoReturn:
        self._note(node, "alias", message, "Write the value out instead of using an alias.")
        raise _EndlessError

    def _note(self, node: yaml.Node, code: str, message: str, fix: str) -> None:
        self.problems.append(problem_at(self.file, place_of_mark(node.start_mark), code, message, fix))
