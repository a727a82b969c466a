"""The article before a name: `an A100`, `a B200`; as it is said, since names of GPUs are read letter by letter."""

from __future__ import annotations

import re
from typing import Final

_LETTERS_WITH_AN: Final = frozenset("AEFHILMNORSX")
"""Those that are said with a vowel first: an F, an H."""
_SAID_AS_WORDS: Final = ("MIG", "NUMA", "RAM", "FLOP", "RoCE")
"""Of what is written in capitals, what is not read letter by letter."""
_WITH_A: Final = re.compile(r"(?:us[aeiu]|uni|eu|one\b)", re.IGNORECASE)
"""Begin with a vowel and are not said so: a user, a unit, a one-off."""
_NUMBERS_WITH_AN: Final = re.compile(r"(?:8|11|18)(?!\d)|8\d")


def with_article(noun: str) -> str:
    """`an A100`, `an environment variable name`, `a URL`."""
    return f"{'an' if _is_vowel_said(noun) else 'a'} {noun}"


def _is_vowel_said(noun: str) -> bool:
    first = re.split(r"[\s_-]", noun, maxsplit=1)[0]
    if _NUMBERS_WITH_AN.match(first):
        return True
    if not first[:1].isalpha():
        return False
    # Two capitals, or a capital before a digit: A100, RTX, L40S, GPU.
    if re.match(r"[A-Z](?:[A-Z]|\d|$)", first) and not first.startswith(_SAID_AS_WORDS):
        return first[0] in _LETTERS_WITH_AN
    return first[0].lower() in "aeiou" and not _WITH_A.match(first)
