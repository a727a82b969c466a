"""How easily the pages read: `python -m hack.prose [PAGE...]` prints one line a page, the longest first.

Counted is what a reader reads as prose: code blocks are left out, cells of tables count as words, but not as sentences.
Figures guide a rewrite and hold it (tests/house/test_prose.py); they say nothing of whether a page is right.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
LONG: Final = 30
"""Words from which on a sentence is long."""

_FENCE: Final = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_CODE: Final = re.compile(r"`[^`\n]+`")
_ITEM: Final = re.compile(r"^ *(?:[-*]|\d+\.) +")
_END: Final = re.compile(r"(?<=[.!?])[*)\"”]* +(?=[*(\"“]*[A-Z`0-9])")
_WORD: Final = re.compile(r"[^\W_][\w'.,/%:+-]*")
_PERSON: Final = re.compile(
    r"\b(?:who|whoever|whom|nobody|somebody|anybody|everybody|anyone|someone|no one)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Reading:
    """Counts of one page."""

    words: int
    """Outside code blocks, tables included."""
    sentences: int
    long: int
    """Sentences of more than `LONG` words."""
    persons: int
    """Words that make a person of a job, a queue or a GPU: who, nobody, whoever."""

    @property
    def long_share(self) -> float:
        """0 to 1; 0 of a page without sentences."""
        return self.long / self.sentences if self.sentences else 0.0


def reading(text: str) -> Reading:
    """Count a page of Markdown."""
    prose = _FENCE.sub("\n", text)
    all_sentences = list(sentences(text))
    return Reading(
        words=sum(len(_words(line)) for line in prose.splitlines()),
        sentences=len(all_sentences),
        long=sum(len(_words(sentence)) > LONG for sentence in all_sentences),
        persons=len(_PERSON.findall(_LINK.sub(r"\1", prose))),
    )


def sentences(text: str) -> Iterator[str]:
    """The sentences of a page of Markdown, without code blocks, headings and tables."""
    for block in _blocks(_FENCE.sub("\n\n", text).splitlines()):
        whole = _CODE.sub(lambda code: code[0].replace(" ", "\0"), _LINK.sub(r"\1", block))
        yield from (sentence.replace("\0", " ") for sentence in _END.split(whole) if _words(sentence))


def _blocks(lines: Iterable[str]) -> Iterator[str]:
    """Paragraphs and items of lists, each in one line."""
    block: list[str] = []
    for line in [*lines, ""]:
        text = line.strip()
        apart = not text or text.startswith(("#", "|", "<", ">"))
        if (apart or _ITEM.match(line)) and block:
            yield " ".join(block)
            block = []
        if not apart:
            block.append(_ITEM.sub("", text))


def _words(text: str) -> list[str]:
    """A stretch of code counts as one word, however much stands in it."""
    return _WORD.findall(_CODE.sub(" code ", _LINK.sub(r"\1", text)))


def main() -> None:
    """Print the counts of the named pages; of README.md and docs/*.md where none is named."""
    named = [Path(name) for name in sys.argv[1:]]
    pages = named or [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    counted = sorted(((reading(page.read_text("utf-8")), page.name) for page in pages), key=lambda row: -row[0].words)
    print(f"{'Page':<30} {'Words':>7} {'Sentences':>10} {'Over 30':>8} {'Persons':>8}")
    for each, name in counted:
        print(f"{name:<30} {each.words:>7,} {each.sentences:>10} {each.long_share:>8.1%} {each.persons:>8}")
    total = Reading(*(sum(getattr(each, field) for each, _ in counted) for field in Reading.__dataclass_fields__))
    print(
        f"{'all':<30} {total.words:>7,} {total.sentences:>10} {total.long_share:>8.1%} {total.persons:>8}\n"
        f"{sum(each.words > 1500 for each, _ in counted)} pages of {len(counted)} have more than 1,500 words"
    )


if __name__ == "__main__":
    main()
