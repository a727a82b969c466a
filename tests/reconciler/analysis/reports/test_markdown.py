"""The comment on a pull request: what it says, how long it gets, and that names stay names for whoever reads Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from reconciler.analysis.reports.markdown import BYTES_MAX, SHOWN_CHARACTERS_MAX, code, markdown, marker
from reconciler.analysis.reports.outline import Outline
from reconciler.analysis.reports.paths import UNKNOWN
from reconciler.analysis.reports.plain_text import one_line
from reconciler.analysis.reports.review_outline import outline_of
from solver.model.workload import JobName
from tests.reconciler.analysis.reports.reviews import PATHS, losing, moved_quota, of_strangers
from tests.reconciler.analysis.reports.strangers import HOSTILE, strangers

GOLDEN = Path(__file__).parent / "golden"
READER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
OURS = {"<sub>", "</sub>", "<br>"}


def outline(names: list[str]) -> Outline:
    return outline_of(of_strangers(names), UNKNOWN, str)


def inline(tokens: list[Token]) -> Iterator[Token]:
    for token in tokens:
        yield from token.children or ()


def test_a_quota_that_is_moved() -> None:
    said = markdown(outline_of(moved_quota(), PATHS, str), "eu-1")
    assert said == (GOLDEN / "plan.md").read_text()
    assert said.startswith("<!-- quorate:plan:v1 eu-1 -->\n")


@settings(max_examples=30)
@given(strangers)
def test_names_are_code_and_nothing_else(names: list[str]) -> None:
    tokens = READER.parse(markdown(outline(names)))
    plain = READER.parse(markdown(outline(["name"])))
    assert [token.type for token in tokens] == [token.type for token in plain]
    assert [token.content for token in tokens if token.type == "html_block"] == [
        token.content for token in plain if token.type == "html_block"
    ]
    # What is not code are our own words, whatever the names are.
    assert [_own(token) for token in inline(tokens)] == [_own(token) for token in inline(plain)]
    assert {token.type for token in inline(tokens)} <= {
        *("text", "code_inline", "html_inline", "softbreak", "strong_open", "strong_close")
    }
    assert {token.content for token in inline(tokens) if token.type == "html_inline"} <= OURS


def _own(token: Token) -> tuple[str, str]:
    return token.type, "" if token.type == "code_inline" else token.content


@given(st.sampled_from(HOSTILE) | st.text(st.characters(), max_size=30) | st.text("`|\\ a", max_size=20))
def test_code_is_the_text_that_it_is(text: str) -> None:
    shown = one_line(text) if one_line(text).strip() else "(blank)"
    alone = list(inline(READER.parse(code(text))))
    assert [(token.type, token.content) for token in alone] == [("code_inline", shown)]
    in_cell = list(inline(READER.parse(f"| h | i |\n| - | - |\n| {code(text, cell=True)} | end |\n")))
    assert [token.content for token in in_cell] == ["h", "i", shown.replace("\\|", "\\x5c|"), "end"]


def test_what_is_too_long_is_cut() -> None:
    assert code("a" * 5_000) == f"`{'a' * (SHOWN_CHARACTERS_MAX - 1)}…`"


@pytest.mark.parametrize("name", ["`" * 300, "<script>" * 40, "\u202e" * 300, "🏴" * 300, "| @x #1 " * 40])
def test_a_comment_is_never_too_long_and_closes_what_it_opens(name: str) -> None:
    jobs = tuple(losing(f"{number}{name}", "vision", 8, 8, 1.0, 0, name) for number in range(3_000))  # type: ignore[arg-type]
    found = of_strangers([name])
    said = markdown(outline_of(msgspec.structs.replace(found, jobs=(*found.jobs, *jobs)), UNKNOWN, str))
    _assert_whole(said, BYTES_MAX)
    assert "more; `-o json` has all." in said


@settings(max_examples=15)
@given(st.integers(5_000, 20_000))
def test_the_least_important_sections_go_first(bytes_max: int) -> None:
    whole = outline_of(moved_quota(), PATHS, str)
    jobs = tuple(losing(f"job-{number}", JobName("vision"), 8, 8, 1.0, 0, None) for number in range(300))  # type: ignore[arg-type]
    long = outline_of(msgspec.structs.replace(moved_quota(), jobs=jobs), PATHS, str)
    for outlined in (whole, long):
        said = markdown(outlined, bytes_max=bytes_max)
        _assert_whole(said, bytes_max)
        shown = [section.title for section in outlined.sections if f"<summary>{section.title} (" in said]
        assert shown == [section.title for section in outlined.sections[: len(shown)]]
        left = len(outlined.sections) - len(shown)
        assert (f"{left} section{'s' * (left > 1)} left out" in said) == bool(left)


def _assert_whole(said: str, bytes_max: int) -> None:
    assert len(said.encode()) <= bytes_max
    opened = [
        token.content for token in READER.parse(said) if token.type == "html_block" and "details" in token.content
    ]
    assert [text.startswith("</details>") for text in opened] == [False, True] * (len(opened) // 2)
    assert len(opened) % 2 == 0
    assert said.endswith("</sub><br>\n")


def test_the_marker_hides_whatever_a_cluster_is_called() -> None:
    assert marker() == "<!-- quorate:plan:v1 -->"
    (token,) = READER.parse(marker("a --> <b>@x"))
    assert (token.type, token.content.strip()) == ("html_block", "<!-- quorate:plan:v1 a%20--%3E%20%3Cb%3E%40x -->")
