"""Any bytes give values or problems with places: never a traceback, a signal, or a surprise of YAML 1.1."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.documents.reader import read_yaml
from reconciler.documents.text import BYTES_MAX
from reconciler.model.problem import InvalidDocumentsError, Problem

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)

BAD: dict[str, tuple[str | bytes, list[str]]] = {
    "tab indents": ("a:\n\tb: 1\n", ["2:1 tab"]),
    "tab after spaces": ("a:\n  \tb: 1\n", ["2:3 tab"]),
    "NUL": ("a: \0", ["1:4 control-character"]),
    "escape character": ("a: 1\nb: \x1b[2J", ["2:4 control-character"]),
    "UTF-16": ("a: 1".encode("utf-16"), ["1:1 not-utf-8"]),
    "UTF-16 without a mark": ("a: 1".encode("utf-16-le"), ["1:2 control-character"]),
    "byte order mark": (b"\xef\xbb\xbfa: 1", ["1:1 byte-order-mark"]),
    "latin-1": ("a: 1\nb: caf\u00e9".encode("latin-1"), ["2:7 not-utf-8"]),
    "duplicate key": ("a: 1\nb: {c: 1, c: 2}\na: 3\n", ["2:11 duplicate-key", "3:1 duplicate-key"]),
    "merge key": ("a: {<<: {b: 1}}", ["1:5 merge-key"]),
    "tag that would build an object": ("a: !!python/object/apply:os.system [ls]", ["1:4 tag"]),
    "tag of text": ("a: !!str 1", ["1:4 tag"]),
    "local tag": ("!x a", ["1:1 tag"]),
    "many levels of brackets": ("[" * 500, ["1:41 too-deep"]),
    "many levels of mappings": ("".join("  " * level + "a:\n" for level in range(200)), ["41:81 too-deep"]),
    "alias bomb": (BOMB, ["1:32 alias"]),
    "anchor in itself": ("a: &a [1, *a]", ["1:4 alias"]),
    "alias without an anchor": ("a: *b", ["1:4 alias"]),
    "many aliases": ("a: &a 1\nb: [" + "*a, " * 200 + "]", ["2:405 too-many-aliases"]),
    "many values": ("[" + "1," * 300_000 + "]", ["1:400000 too-many-nodes"]),
    "large file": (b" " * (BYTES_MAX + 1), ["1:1 too-large"]),
    "long integer": ("a: " + "9" * 5000, ["1:4 number"]),
    "long float": ("a: 0." + "9" * 5000, ["1:4 number"]),
    "infinity": ("a: .inf\nb: -.INF\nc: .nan", ["1:4 number", "2:4 number", "3:4 number"]),
    "overflow": ("a: 1e999", ["1:4 number"]),
    "key that is a number": ("1: a", ["1:1 key"]),
    "key that is empty": (": a", ["1:1 syntax"]),
    "key that is a list": ("? [a]\n: b", ["1:3 key"]),
    "NUL by an escape": ('a: "b\\0"\n"c\\x00": d', ["1:4 nul", "2:1 nul"]),
    "open quote": ("a: 'b\n", ["2:1 syntax"]),
    "open bracket": ("a: [b\n", ["2:1 syntax"]),
    "colon in text": ("a: b: c", ["1:5 syntax"]),
    "wrong indent": ("a: 1\n b: 2", ["2:3 syntax"]),
    "only a bracket": ("]", ["1:1 syntax"]),
    "version of the future": ("%YAML 9.9\n---\na: 1", ["1:1 syntax"]),
}


def problems(raw: bytes) -> list[str]:
    with pytest.raises(InvalidDocumentsError) as invalid:
        read_yaml(raw, "f.yaml")
    assert all(problem.file == "f.yaml" and problem.message for problem in invalid.value.problems)
    return [f"{problem.line}:{problem.column} {problem.code}" for problem in invalid.value.problems]


@pytest.mark.parametrize("case", BAD)
def test_bad_yaml_gives_one_clear_error_for_each_mistake(case: str) -> None:
    text, expected = BAD[case]
    assert problems(text if isinstance(text, bytes) else text.encode()) == expected


def test_more_brackets_than_the_parser_takes_are_too_deep_wherever_it_ends() -> None:
    (problem,) = problems(b"[" * 500_000)
    assert problem in ("1:41 too-deep", "1:1001 too-deep")


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("NO", "NO"),
        ("yes", "yes"),
        ("on", "on"),
        ("true", True),
        ("False", False),
        ("~", None),
        ("null", None),
        ("", None),
        ("010", 10),
        ("0o10", 8),
        ("0x1F", 31),
        ("-7", -7),
        ("+7", 7),
        ("1_000", "1_000"),
        ("12:30:45", "12:30:45"),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("1e", "1e"),
        ("2001-99-99", "2001-99-99"),
        ("2001-12-14", "2001-12-14"),
        ("=", "="),
        ("'1'", "1"),
        ('"\\u00e9"', "\u00e9"),
        ("|\n  1\n", "1\n"),
        ("999999999999999999", 10**18 - 1),
    ],
)
def test_scalars_mean_what_yaml_1_2_says(written: str, value: object) -> None:
    (document,) = read_yaml(f"a: {written}".encode(), "f.yaml")
    assert document.value == {"a": value}
    assert type(document.value["a"]) is type(value)


def test_values_and_keys_know_their_places() -> None:
    (document,) = read_yaml(b"# comment\na:\n  b: [1, {c: 2}]\n", "f.yaml")
    assert document.place(("a", "b", 1, "c")) == (3, 14)
    assert document.key_place(("a", "b", 1, "c")) == (3, 11)
    assert document.place(("a", "b", 1, "absent")) == (3, 10), "the nearest value around it"


def test_aliases_within_budget_are_written_out() -> None:
    (document,) = read_yaml(b"a: &a [1, 2]\nb: [*a, *a]\n", "f.yaml")
    assert document.value == {"a": [1, 2], "b": [[1, 2], [1, 2]]}


def test_empty_documents_are_left_out() -> None:
    assert [document.value for document in read_yaml(b"# nothing\n---\n---\na: 1\n---\n", "f.yaml")] == [{"a": 1}]


@given(st.one_of(st.binary(max_size=300), st.text(max_size=300).map(str.encode)))
def test_any_bytes_are_read_or_refused_with_a_place(raw: bytes) -> None:
    read_or_refused(raw)


YAML_PIECES = st.sampled_from(
    [
        "a",
        "b: ",
        "- ",
        "? ",
        ": ",
        "[",
        "]",
        "{",
        "}",
        ", ",
        "&x ",
        "*x",
        "!t ",
        "<<: ",
        "'",
        '"',
        "|\n",
        ">",
        "\n",
        "  ",
        "\t",
        "#",
        "---\n",
        "%Y",
        "~",
        "1",
        "\ufeff",
    ]
)


@given(st.lists(YAML_PIECES, max_size=40).map("".join))
def test_any_mixture_of_yaml_is_read_or_refused_with_a_place(text: str) -> None:
    read_or_refused(text.encode())


def read_or_refused(raw: bytes) -> None:
    problems: tuple[Problem, ...] | None = None
    try:
        documents = read_yaml(raw, "f.yaml")
    except InvalidDocumentsError as invalid:
        documents, problems = (), invalid.problems
    assert all(has_json_types(document.value) for document in documents)
    assert problems is None or problems
    lines = len(raw.decode("utf-8", "replace").splitlines())
    for problem in problems or ():
        assert 1 <= problem.line <= lines + 1
        assert problem.column >= 1
        assert problem.message


def has_json_types(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and has_json_types(inner) for key, inner in value.items())
    if isinstance(value, list):
        return all(map(has_json_types, value))
    return value is None or isinstance(value, str | int | float | bool)


def test_a_separator_that_was_forgotten_is_guessed() -> None:
    with pytest.raises(InvalidDocumentsError) as raised:
        read_yaml(b"kind: Queue\nspec: {a: 1, a: 2}\nkind: Queue\n", "x.yaml")
    assert [(problem.line, "---" in problem.fix) for problem in raised.value.problems] == [(2, False), (3, True)]
