"""Pages of a list: an opaque cursor says where the next one begins."""

from __future__ import annotations

import base64
import binascii
from typing import Final
from urllib.parse import urlencode

from fastapi import Request

from reconciler.api.problems import RequestRefusedError

CURSOR_MAX: Final = 400


def cursor_of(place: str | int) -> str:
    """The cursor of a place in a list; what it looks like does not matter to callers."""
    return base64.urlsafe_b64encode(str(place).encode()).decode().rstrip("=")


def place_of(cursor: str) -> str:
    """The place that a cursor stands for; "" for none. Raises RequestRefusedError for what is no cursor."""
    try:
        return base64.b64decode(cursor.encode() + b"=" * (-len(cursor) % 4), b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError) as error:
        raise bad_cursor() from error


def number_of(cursor: str) -> int | None:
    """The number that a cursor stands for; None for no cursor. Raises RequestRefusedError."""
    place = place_of(cursor)
    if not place:
        return None
    if not (place.isascii() and place.isdecimal() and len(place) < 19):
        raise bad_cursor()
    return int(place)


def bad_cursor() -> RequestRefusedError:
    """What to raise for a cursor that this server did not give."""
    return RequestRefusedError(
        422, "bad-cursor", "This is no cursor of this list.", "Take `next` of the page before, or leave it out."
    )


def link_to(request: Request, cursor: str) -> dict[str, str]:
    """The header that leads to the next page (RFC 8288); none where there is none."""
    if not cursor:
        return {}
    kept = [(name, value) for name, value in request.query_params.multi_items() if name != "cursor"]
    return {"Link": f'<{request.url.path}?{urlencode([*kept, ("cursor", cursor)])}>; rel="next"'}
