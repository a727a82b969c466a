"""Names that documents can have, made of the names that a source has; each source name keeps the one that it got first."""

from __future__ import annotations

import re
from typing import Final

from solver.model.document import Document

_LENGTH_MAX: Final = 63
_NOT_ALLOWED = re.compile(r"[^a-z0-9]+")


class Renaming(Document, frozen=True, omit_defaults=False):
    """A name that had to change."""

    kind: str
    before: str
    after: str


class Slugs:
    """Gives names of one kind of document: lower case, hyphens, at most 63 characters, each once."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._given = dict[str, str]()
        self._wanted = dict[str, str]()
        self._taken = set[str]()

    def of(self, key: str, wanted: str = "") -> str:
        """The name for a key (a path in the source's tree, say), made from `wanted` or the key itself."""
        if key not in self._given:
            self._given[key] = self._free(slug(wanted or key))
            self._taken.add(self._given[key])
            self._wanted[key] = wanted or key
        return self._given[key]

    def known(self, key: str) -> str | None:
        """The name that a key got; None if it got none."""
        return self._given.get(key)

    @property
    def by_key(self) -> dict[str, str]:
        """The name of each key."""
        return dict(self._given)

    @property
    def by_wanted(self) -> dict[str, str]:
        """The name that each wanted one became; of several that wanted the same, the first's."""
        found = dict[str, str]()
        for key, name in self._given.items():
            found.setdefault(self._wanted[key], name)
        return found

    @property
    def renamings(self) -> list[Renaming]:
        """Every name that is another than was wanted."""
        return [
            Renaming(self._kind, key, name) for key, name in sorted(self._given.items()) if name != self._wanted[key]
        ]

    def _free(self, name: str) -> str:
        number, found = 2, name
        while found in self._taken:
            end = f"-{number}"
            found = name[: _LENGTH_MAX - len(end)].rstrip("-") + end
            number += 1
        return found


def slug(name: str) -> str:
    """A name in lower case, with hyphens for what is no letter or digit."""
    return _NOT_ALLOWED.sub("-", name.lower()).strip("-")[:_LENGTH_MAX].strip("-") or "unnamed"
