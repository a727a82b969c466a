"""Templates of chat messages: fields and nothing else, and values that stay text whatever they are."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.alerts.alert import Alert
from reconciler.alerts.template import DEFAULT_OF_JOB, DEFAULT_OF_POLICY, FIELDS, escaped, render_template, wrong_fields
from solver.model.quantities import Instant

ALERT = Alert(
    *(7, "evicted", Instant(0), "train", "it gives up 4 GPUs", "loop"),
    job="train",
    queue="research",
    user="ada",
    attempt=2,
    beneficiary="serve",
)


def test_fields_are_filled() -> None:
    template = "{job} was {kind} for {beneficiary} in attempt {attempt} at {time}: {cause}"
    assert (
        render_template(template, ALERT)
        == "train was evicted for serve in attempt 2 at 1970-01-01T00:00:00Z: it gives up 4 GPUs"
    )
    assert render_template(DEFAULT_OF_JOB, ALERT) == "train of ada in research: evicted. it gives up 4 GPUs"
    assert wrong_fields(DEFAULT_OF_JOB) == wrong_fields(DEFAULT_OF_POLICY) == ()


def test_every_field_is_one_of_an_alert() -> None:
    assert set(Alert.__struct_fields__) >= FIELDS


@pytest.mark.parametrize(
    "attack",
    [
        "{job.__class__}",
        "{job!r}",
        "{job:>999999999}",
        "{0}",
        "{}",
        "{__class__}",
        "{job[0]}",
        "{job",
        "job}",
        "{{job}}",
        "{Job}",
        "{number}",
    ],
)
def test_what_str_format_would_have_followed_is_refused_and_reaches_nothing(attack: str) -> None:
    assert wrong_fields(attack)
    assert "class" not in render_template(attack, ALERT).replace("__class__", "")
    assert len(render_template(attack, ALERT)) < 100


@pytest.mark.parametrize(
    ("value", "never"),
    [
        ("<!channel>", "<"),
        ("<https://evil.example|click>", "<"),
        ("@channel", "@channel"),
        ("[click](https://evil.example)", "]("),
        ("https://evil.example", "://"),
        ("*bold* _it_ ~no~ `code`", "*bold*"),
        ("two\nlines\r\u2028\x1b[2J", "\n"),
        ("{job}", "train"),
        ("&lt;", "&lt;"),
    ],
)
def test_a_value_is_text_and_nothing_else(value: str, never: str) -> None:
    said = render_template("{cause}", msgspec.structs.replace(ALERT, cause=value))
    assert never not in said
    assert "\x1b" not in said


@given(st.text(max_size=2_000))
def test_no_value_begins_markup_or_another_line(value: str) -> None:
    said = escaped(value)
    assert not set(said) & set("<>\n\r\u2028\x00")
    assert all(said[place + 1 : place + 2] == "\u2060" for place, char in enumerate(said) if char in "@*_`[]|")
    assert "://" not in said
    assert len(said) <= 500 * 6
