"""Times as people read and write them, in the local zone or one that is named; beside spans, which are written alike."""

from __future__ import annotations

from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from reconciler.cli.exits import ExitCode
from reconciler.cli.output import CommandFailedError
from reconciler.model.spans import span
from solver.model.quantities import Instant

__all__ = ["local", "moment_of", "span", "zone_of"]


def local(instant: Instant, zone: ZoneInfo | None = None) -> str:
    """Like `2026-11-20 09:00:00 +01:00`; in a zone that was asked for, like `2026-11-20 09:00:00 Europe/Berlin`."""
    if zone is not None:
        return f"{datetime.fromtimestamp(int(instant) // 1_000, zone):%Y-%m-%d %H:%M:%S} {zone.key}"
    moment = datetime.fromtimestamp(int(instant) // 1_000, UTC).astimezone()
    offset = moment.strftime("%z")
    return f"{moment:%Y-%m-%d %H:%M:%S} {offset[:3]}:{offset[3:5]}"


def zone_of(name: str | None) -> ZoneInfo | None:
    """The zone of a name of the IANA database; None: this machine's. Raises CommandFailedError."""
    if name is None:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        fix = "Write it as the IANA database does: Europe/Berlin."
        raise CommandFailedError(f"there is no time zone {name}", fix=fix, exit_code=ExitCode.USAGE) from None


def moment_of(written: str, zone: ZoneInfo | None) -> str:
    """A date as the time at which it begins in the zone; anything else is for the server to read."""
    try:
        day = date.fromisoformat(written)
    except ValueError:
        return written
    begun = datetime(day.year, day.month, day.day)
    return begun.replace(tzinfo=zone).astimezone(zone).isoformat() if zone else begun.astimezone().isoformat()
