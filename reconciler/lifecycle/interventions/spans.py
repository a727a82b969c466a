"""Until when an intervention is to last: as asked for, or as long as is usual, but never longer than policy allows. Pure."""

from __future__ import annotations

from reconciler.model.intervention_record import DEFAULT_SPAN
from solver.model.quantities import Duration, Instant


class UnfitEndError(ValueError):
    """It says no end, one that has passed, or one that is too far away. `fix` says what to write."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.fix = fix


def end_of(written: str, now: Instant, longest: Duration) -> Instant:
    """The end that a span from now (`4h`), a time (`2026-11-22T08:00:00Z`) or "" (as is usual) says. Raises UnfitEndError."""
    until = read_end(written, now) if written else now.after(min(DEFAULT_SPAN, longest))
    if until > now.after(longest):
        fix = f"Write at most {longest} (breakGlass.maxDuration of the AccessPolicy), or put it into Git."
        raise UnfitEndError(f"{written} is longer than anything by hand may last, {longest}.", fix)
    return until


def read_end(written: str, now: Instant) -> Instant:
    """The end that a span from now or a time says, however far away. Raises UnfitEndError."""
    until = _read(written, now)
    if until <= now:
        raise UnfitEndError(f"{written} is not in the future.", "Write a span such as 4h, or a later time.")
    return until


def _read(written: str, now: Instant) -> Instant:
    for kind in (Duration, Instant):
        try:
            value = kind.parse(written)
        except ValueError:
            continue
        return now.after(value) if isinstance(value, Duration) else Instant(value)
    raise UnfitEndError(f"{written!r} is neither a span nor a time.", "Write it like 4h or 2026-11-22T08:00:00Z.")
