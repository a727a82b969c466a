"""The user that a request comes from."""

from __future__ import annotations

from solver.model.document import Document
from solver.model.quantities import Instant


class Caller(Document, frozen=True):
    """A user and the groups that their token states. `owner`: holds the state folder's token, and so may do everything.

    `until`: when the proof expires; None: not by itself.
    """

    user: str
    groups: frozenset[str] = frozenset()
    owner: bool = False
    until: Instant | None = None
