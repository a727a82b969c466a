"""What is said of a gang that can't be placed as it asks: why, and what would work."""

from __future__ import annotations

from typing import Final, NamedTuple

KEPT_AWAY: Final = "kept-away"
"""The code of a refusal by other pods, which may go, or come: whatever pods ask of where others are leaves no node for now."""


class Refusal(NamedTuple):
    """A hard wish that can't be kept, so the gang is not placed. `code` is a stable slug; `fix` says what to write instead."""

    code: str
    message: str
    fix: str

    def __str__(self) -> str:
        return f"{self.message}. {self.fix}"


class Remark(NamedTuple):
    """A wish that is not followed, or only in part; the gang is placed all the same."""

    code: str
    message: str

    def __str__(self) -> str:
        return self.message


class Missing(NamedTuple):
    """A gang with pods that are not all there yet. `of` None: it is not known yet how many there will be, for the `reason`.

    Otherwise `reason` is why no more are made, where that is known.
    """

    there: int
    of: int | None
    reason: str = ""

    def __str__(self) -> str:
        if self.of is None:
            return self.reason
        return f"waiting for {self.of - self.there} of {self.of} pods{f': {self.reason}' if self.reason else ''}"
