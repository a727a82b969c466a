"""What a task writes can't steer the terminal of a person who reads it."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.cli.terminal_text import TerminalText
from tests.reconciler.api.conftest import Site
from tests.reconciler.cli.conftest import Quorate, on, submitted


def shown(*pieces: bytes) -> str:
    text = TerminalText()
    return "".join(map(text.of, pieces)) + text.end()


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (b"50%\r60%\ttab\nline\n", "50%\r60%\ttab\nline\n"),
        (b"\x1b[1;31mred\x1b[0m", "\x1b[1;31mred\x1b[0m\x1b[0m"),
        (b"\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        (b"\x1b[2J\x1b[H", "\\x1b[2J\\x1b[H"),
        (b"\x1b", "\\x1b"),
        ("\x9b2J \u202etxt".encode(), "\\x9b2J \\u202etxt"),
        ("größer 世界 ".encode() + b"\xff", "größer 世界 �"),
    ],
)
def test_text_and_colours_are_let_through(written: bytes, expected: str) -> None:
    assert shown(written) == expected


@given(st.binary() | st.text(alphabet="\x1b[;3mJ世\u202e\r\na").map(str.encode), st.data())
def test_it_does_not_matter_how_it_is_cut(written: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(written)), max_size=5)))
    pieces = [written[a:b] for a, b in zip([0, *cuts], [*cuts, len(written)], strict=True)]
    assert shown(*pieces) == shown(written)


def test_logs_on_a_terminal(quorate: Quorate, site: Site, at_server: object, monkeypatch: pytest.MonkeyPatch) -> None:
    job = submitted(site, "job")
    site.bind("job", on(site.snapshot().nodes[0], 0))
    site.logs[job, 1, "worker", 0] = b"\x1b[32mok\x1b[0m\x1b]0;mine\x07\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert quorate("logs", "job").out == "\x1b[32mok\x1b[0m\\x1b]0;mine\\x07\n\x1b[0m"
