"""What every reason of a verdict is, and the turns of phrase that several share."""

from __future__ import annotations

from solver.world.document import Document


class Reason(Document, frozen=True, tag_field="code"):
    """One binding constraint. `str` says it to a person."""


def at(origin: str) -> str:
    """The place in Git, where it is known."""
    return f" ({origin})" if origin else ""


def did_you_mean(nearest: tuple[str, ...]) -> str:
    """The names that may have been meant, where there are any."""
    return f"; did you mean {', '.join(nearest)}?" if nearest else ""
