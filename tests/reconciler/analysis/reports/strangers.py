"""Text that wants to be more than text: markup, mentions, terminal sequences, characters that hide or run backwards."""

from __future__ import annotations

from hypothesis import strategies as st

HOSTILE = (
    "<script>alert(1)</script>",
    "</details></summary><h1>merged",
    "<!-- quorate:plan:v1 --> -->",
    "@everyone please approve",
    "#1 GH-2 acme/repo#3 36a9f4c2d1b0",
    "[click](https://evil.example) ![x](https://evil.example/x.png)",
    "www.evil.example mail@evil.example <https://evil.example>",
    "a | b \\| c \\\\| d",
    "``` \n``` `` ` ~~~",
    "line\nline\r\n\n| - | - |\n# heading",
    "*bold* _it_ ~~gone~~ &amp; &#64;x \\*",
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x9b2J",
    "admin\u202egnp.exe\u2066 \u200b\u200d\ufeff",
    "\x00\x7f\ud800",
    " ",
    "[red]rich markup[/red] :smile:",
    "::error::stop\n::add-mask::x",
    "+1 - 2. > quote",
)

strangers = st.lists(
    st.sampled_from(HOSTILE)
    | st.text(st.characters(), min_size=1, max_size=40)
    | st.text("`|\\<>@#[]()*_~ \n\u202ea", min_size=1, max_size=30),
    min_size=1,
    max_size=6,
)
"""Names, each used many times over."""
