"""Names that differ from another by one slip of the pen, found among thousands without comparing each with each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from typing import Final

_LENGTH_MAX: Final = 64
"""Longer names are no slips of each other here: what is kept of a name grows with the square of its length."""
_ALIKE: Final = 0.8
"""So alike two names have to be: `an` and `ann` are, `bob` and `rob` are not, though one letter makes the difference, too."""


class NearNames:
    """Names by what is left of them without any one letter: names that share any of this are one slip apart."""

    def __init__(self, names: Iterable[str]) -> None:
        self._by_form: dict[str, list[str]] = {}
        for name in sorted(set(names)):
            for form in _forms(name):
                self._by_form.setdefault(form, []).append(name)

    def nearest(self, written: str) -> str | None:
        """The name that is most likely meant; None: none is near."""
        near = {name for form in _forms(written) for name in self._by_form.get(form, ())}
        alike = [(_likeness(name, written), name) for name in sorted(near)]
        return max((each for each in alike if each[0] >= _ALIKE), default=(0.0, None))[1]


def _forms(name: str) -> Iterator[str]:
    if len(name) <= _LENGTH_MAX:
        yield name
        yield from {name[:at] + name[at + 1 :] for at in range(len(name))}


def _likeness(one: str, other: str) -> float:
    """1.0 is the same, also where two letters have changed places."""
    return 1.0 if sorted(one) == sorted(other) else SequenceMatcher(None, one, other).ratio()
