"""Whether a document has the shape that its schema asks for, and if not, where, in words for a person."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from jsonschema import ValidationError

from reconciler.documents.reader import Located
from reconciler.documents.schemas import KINDS, validator_of
from reconciler.model.problem import Path, Problem, did_you_mean, problem_at, shown
from solver.plan.words import with_article

_Finding = tuple[Path, bool, str, str, str]
"""Path, whether its key (and not its value) is meant, code, message, fix."""

_TYPE_WORDS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
}


def kind_of(document: Located, file: str) -> str | Problem:
    """The document's kind, or what is wrong with it."""
    value = document.value
    if not isinstance(value, dict):
        message = f"a document is a mapping with apiVersion, kind, metadata and spec, not {_called(value)}"
        return problem_at(
            file, document.place(()), "not-a-document", message, "Begin with `apiVersion: quorate.dev/v1`."
        )
    kind = value.get("kind")
    if kind is None:
        return problem_at(
            file,
            document.place(()),
            "missing-field",
            "the field kind is missing",
            "Add `kind: Queue` or another; `quorate explain` lists them.",
        )
    if kind not in KINDS:
        fix = did_you_mean(kind, KINDS)
        return problem_at(file, document.place(("kind",)), "unknown-kind", f"there is no kind {shown(kind)}", fix)
    return str(kind)


def shape_problems(document: Located, kind: str, file: str) -> list[Problem]:
    """Everything in which a document differs from the schema of its kind, without repeats, sorted."""
    found = set()
    for error in _of_the_form(validator_of(kind).iter_errors(document.value)):
        difference = _difference(error)
        for path, at_key, code, message, fix in _EXPLAINERS.get(difference.keyword, _anything_else)(difference):
            place = document.key_place(path) if at_key else document.place(path)
            found.add(problem_at(file, place, code, _by_resource(message, path, document), fix))
    return sorted(found)


def _by_resource(message: str, path: Path, document: Located) -> str:
    """A message that names a row of CPU or memory by that: such rows may stand in `quota`, where another place is counted."""
    if path[:2] != ("spec", "hostQuota") or len(path) < 3:
        return message
    row = document.value["spec"]["hostQuota"][path[2]]
    resource = row.get("resource") if isinstance(row, dict) else None
    named = f"spec.hostQuota[{resource}]"
    is_named = isinstance(resource, str) and resource.isalnum()
    return message.replace(f"spec.hostQuota[{path[2]}]", named) if is_named else message


def _of_the_form(errors: Iterable[ValidationError]) -> Iterator[ValidationError]:
    """The errors; of a value with a field that says which form it has, as `resource: cpu` does, those of this form."""
    for error in errors:
        forms = _forms(error.validator_value) if error.validator == "oneOf" else {}
        if not forms or not isinstance(error.instance, dict):
            yield error
            continue
        (tag,) = {tag for tag, _ in forms}
        said = error.instance.get(tag)
        number = next((number for (_, value), number in forms.items() if value == said), None)
        for below in error.context or ():
            is_mine = below.schema_path[0] == (number or 0)
            if tag in error.instance and number is None:
                if is_mine and below.validator == "const":
                    known = [value for _, value in forms]
                    below.validator, below.validator_value = "enum", known
                    yield below
            elif is_mine and (number is not None or below.validator == "required"):
                yield below


def _forms(ways: Any) -> dict[tuple[str, str], int]:
    """By the field that says the form, and its value there, which of the ways it is; nothing where no one field says it."""
    found = {
        (name, field["const"]): number
        for number, way in enumerate(ways)
        for name, field in way.get("properties", {}).items()
        if "const" in field and name in way.get("required", ())
    }
    return found if len(found) == len(ways) and len({name for name, _ in found}) == 1 else {}


class _Difference(NamedTuple):
    """What jsonschema found: the schema's keyword that does not hold, what it asks for, and the value at the path."""

    keyword: str
    wanted: Any
    value: Any
    path: Path
    schema: Mapping[str, Any]
    of_key: bool
    message: str


def _difference(error: ValidationError) -> _Difference:
    schema = error.schema if isinstance(error.schema, Mapping) else {}
    of_key = "propertyNames" in error.absolute_schema_path
    path = tuple(error.absolute_path)
    return _Difference(str(error.validator), error.validator_value, error.instance, path, schema, of_key, error.message)


def _anything_else(found: _Difference) -> Iterator[_Finding]:
    yield found.path, False, "invalid-value", f"{_field(found.path)}: {found.message[:200]}", ""


def _unknown_fields(found: _Difference) -> Iterator[_Finding]:
    known = found.schema.get("properties", {})
    # What people look for here, and where it belongs.
    elsewhere = found.schema.get("elsewhere", {})
    where = f" in {_field(found.path)}" if found.path else ""
    for key in found.value:
        if key not in known:
            yield (
                (*found.path, key),
                True,
                "unknown-field",
                f"there is no field {shown(key)}{where}",
                elsewhere.get(key) or did_you_mean(key, known),
            )


def _missing_fields(found: _Difference) -> Iterator[_Finding]:
    if not found.schema.get("elsewhere", {}).keys().isdisjoint(found.value):
        return  # it is about something else, which is an error of its own
    for key in found.wanted:
        if key not in found.value:
            yield found.path, True, "missing-field", f"{_field(found.path)} lacks the field {key}", f"Add {key}."


def _missing_beside(found: _Difference) -> Iterator[_Finding]:
    for key, needed in found.wanted.items():
        for other in needed:
            if key in found.value and other not in found.value:
                at = (*found.path, key)
                yield at, True, "missing-field", f"{_field(at)} needs {other} beside it", f"Add {other}."


def _not_exactly_one(found: _Difference) -> Iterator[_Finding]:
    if not isinstance(found.value, dict):
        return  # the wrong type is an error of its own
    ways = [way.get("required", ()) for way in found.wanted]
    begun = [way for way in ways if any(key in found.value for key in way)]
    if len(begun) == 1:
        return  # what is missing of the one way is an error of its own
    choice = " or ".join(" with ".join(way) for way in ways)
    if begun:
        yield found.path, True, "choose-one", f"{_field(found.path)} mixes {choice}", "Keep only one of them."
    else:
        yield found.path, True, "missing-field", f"{_field(found.path)} needs {choice}", "Add one of them."


def _wrong_type(found: _Difference) -> Iterator[_Finding]:
    wanted = found.wanted if isinstance(found.wanted, list) else [found.wanted]
    title = found.schema.get("title")
    words = _in_words(str(title), found.schema) if title else " or ".join(_TYPE_WORDS[name] for name in wanted)
    message = f"{_field(found.path)} is {_called(found.value)}, expected {words}"
    fix = ""
    if found.value is None:
        fix = "Give it a value, or delete the field."
    elif "string" in wanted and isinstance(found.value, bool | int | float):
        fix = _as_text(found)
    elif wanted == ["integer"] and isinstance(found.value, float):
        is_whole = found.value.is_integer()
        fix = f"Write it as {int(found.value)}." if is_whole else str(found.schema.get("ofFraction", ""))
    elif isinstance(found.value, str) and _is_number(found.value, wanted):
        fix = f"Write it without quotes: {found.value}."
    yield found.path, False, "wrong-type", message, fix


def _in_words(title: str, schema: Mapping[str, Any]) -> str:
    """What is expected, by its title, which does not say by itself that a number is whole."""
    return f"{_TYPE_WORDS['integer']} as {title}" if schema.get("type") == "integer" else title


def _is_number(written: str, wanted: Iterable[str]) -> bool:
    """Whether a text is what was meant, but for its quotes."""
    forms = {"integer": r"-?\d{1,18}", "number": r"-?\d{1,18}(\.\d{1,18})?"}
    return any(name in forms and re.fullmatch(forms[name], written) for name in wanted)


def _as_text(found: _Difference) -> str:
    """How the value is written as text: in quotes, where that would be accepted."""
    quoted = shown(found.value)
    pattern, examples = found.schema.get("pattern"), found.schema.get("examples")
    if pattern and examples and not re.search(pattern, quoted):
        return _like(examples)
    return f'Quote it: "{quoted}".'


def _like(examples: Iterable[str]) -> str:
    return f"Write it like {' or '.join(examples)}."


def _not_allowed(found: _Difference) -> Iterator[_Finding]:
    allowed = found.wanted if found.keyword == "enum" else [found.wanted]
    message = f"{_field(found.path)} can't be {shown(found.value)}"
    yield found.path, False, "unknown-value", message, did_you_mean(found.value, map(str, allowed))


def _malformed(found: _Difference) -> Iterator[_Finding]:
    listed = _LISTED_WORDS.fullmatch(str(found.wanted))
    if listed:
        # Of a field that takes one of some words, or a list of them: wrong like any other word.
        yield from _not_allowed(found._replace(keyword="enum", wanted=listed[1].split("|")))
        return
    examples = found.schema.get("examples")
    fix = _like(examples) if examples else str(found.schema.get("description", ""))
    at = (*found.path, str(found.value)) if found.of_key else found.path
    kind = found.schema.get("title", "value of this form")
    message = f"{_field(found.path)}: {shown(found.value)} is not {with_article(kind)}"
    yield at, found.of_key, "malformed", message, fix


def _outside(found: _Difference) -> Iterator[_Finding]:
    count = len(found.value) if isinstance(found.value, list | dict | str) else 0
    said = _LIMIT_WORDS[found.keyword].format(given=shown(found.value), limit=found.wanted, count=count)
    yield found.path, False, "out-of-range", f"{_field(found.path)} {said}", ""


_LISTED_WORDS = re.compile(r"\^\(([a-z-]+(?:\|[a-z-]+)+)\)\$")
"""A pattern that lists the words that there are."""

_LIMIT_WORDS = {
    "minimum": "is {given}, at least {limit} is allowed",
    "exclusiveMinimum": "is {given}, more than {limit} is needed",
    "maximum": "is {given}, at most {limit} is allowed",
    "maxLength": "is longer than {limit} characters",
    "minItems": "has {count} items, at least {limit} is needed",
    "maxItems": "has {count} items, at most {limit} are allowed",
    "minProperties": "has {count} fields, at least {limit} is needed",
    "maxProperties": "has {count} fields, at most {limit} are allowed",
    "uniqueItems": "has the same item twice",
}
_EXPLAINERS: dict[str, Callable[[_Difference], Iterator[_Finding]]] = {
    "additionalProperties": _unknown_fields,
    "required": _missing_fields,
    "dependentRequired": _missing_beside,
    "oneOf": _not_exactly_one,
    "type": _wrong_type,
    "enum": _not_allowed,
    "const": _not_allowed,
    "pattern": _malformed,
    **dict.fromkeys(_LIMIT_WORDS, _outside),
}


def _field(path: Path) -> str:
    """A path as people write it: spec.quota[0].max."""
    written = ""
    for step in path:
        if isinstance(step, int):
            written += f"[{step}]"
        else:
            name = step if step.isprintable() else shown(step)
            written += f".{name}" if written else name
    return written[:100] or "the document"


def _called(value: Any) -> str:
    if value is None:
        return "empty"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, str):
        return f"the text {shown(value)}"
    return shown(value)
