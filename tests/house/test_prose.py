"""Pages stay readable: one task in under 1,500 words, few long sentences. `python -m hack.prose` shows the counts of all."""

from __future__ import annotations

from pathlib import Path

import pytest

from hack.prose import reading, sentences
from tests.house.tracked import ROOT

WORDS = 1_600
"""A tenth above what a page should have at most: there a page is split, or what is double in it goes."""
LONG_SHARE = 0.10
"""Of sentences over 30 words, on a page that users read."""
REFERENCE = {
    "cli.md": "every command and option",
    "kubernetes-objects.md": "every object and its fields",
    "metrics.md": "every metric",
    "policy-reference.md": "every kind of document",
    "reasons.md": "every reason",
    "semantics.md": "every scenario that compares with others",
}
"""Looked up, not read from the top: they may be as long as what they list."""
INSIDE = {
    "benchmarks.md", "dependencies.md", "performance.md", "promises.md", "rounds-tried.md",
    "solver-large.md", "solver-measured.md", "solver-rows.md", "solver-running.md", "solver-victims.md", "weaknesses.md",
}  # fmt: skip
"""For developers of Quorate: formulas, figures and findings. A page leaves this list once it keeps the limits."""
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
USER_PAGES = [page for page in PAGES if page.name not in INSIDE]


@pytest.mark.parametrize("page", USER_PAGES, ids=lambda page: page.name)
def test_a_page_can_be_read_in_one_go(page: Path) -> None:
    counted = reading(page.read_text("utf-8"))
    assert counted.words <= WORDS or page.name in REFERENCE, "split it by task"
    assert counted.long_share <= LONG_SHARE, "cut its sentences: python -m hack.prose names the pages"


def test_the_lists_name_pages_that_are_there() -> None:
    assert set(REFERENCE) | INSIDE <= {page.name for page in PAGES}


def test_sentences_are_told_apart() -> None:
    text = """# A heading

Fetched by `a. B`. It ends, as in
[this page](x.md). Then it goes on: 1.5 s.

- An item. Another.
- One more

| Tables | are not sentences. At all. |
|---|---|

```console
$ neither. Are. Commands.
```
"""
    found = list(sentences(text))
    assert found == [
        "Fetched by `a. B`.", "It ends, as in this page.", "Then it goes on: 1.5 s.", "An item.", "Another.", "One more",
    ]  # fmt: skip
    assert (reading(text).sentences, reading(text).long, reading("Who waits? Nobody.").persons) == (6, 0, 2)
