"""Style and modules of the console, read once: they lie beside this module, in a checkout as in a wheel."""

from __future__ import annotations

import gzip
import hashlib
from http import HTTPStatus
from importlib.resources import files
from typing import Final, NamedTuple

from fastapi import APIRouter, Header, Request, Response

from reconciler.api.problems import RequestRefusedError
from reconciler.web.page_route import PageRoute
from reconciler.web.pages import HEADERS

_KINDS: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


class StaticFile(NamedTuple):
    """A file as it is sent. `tag` names its content."""

    kind: str
    plain: bytes
    packed: bytes
    tag: str


def static_files() -> dict[str, StaticFile]:
    """All of them by name."""
    found = {}
    for path in files("reconciler.web").joinpath("static").iterdir():
        kind = _KINDS.get("." + path.name.rpartition(".")[2])
        if kind is not None:
            text = path.read_bytes()
            tag = f'"{hashlib.sha256(text).hexdigest()[:20]}"'
            found[path.name] = StaticFile(kind, text, gzip.compress(text, 9, mtime=0), tag)
    return found


class StaticRoutes:
    """The endpoint; `router` has it. Nothing is secret about it: the page to sign in needs them, too."""

    def __init__(self) -> None:
        self._files = static_files()
        self.router = APIRouter(route_class=PageRoute, include_in_schema=False)
        self.router.add_api_route("/static/{name}", self.file)

    def file(self, name: str, request: Request, if_none_match: str = Header("")) -> Response:
        """One of them."""
        known = self._files.get(name)
        if known is None:
            raise RequestRefusedError(404, "unknown-page", f"There is no file {name}.")
        # A browser asks each time whether it is still the one: another release has others.
        headers = {**HEADERS, "ETag": known.tag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
        if known.tag in (each.strip() for each in if_none_match.split(",")):
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(known.packed, headers={**headers, "Content-Encoding": "gzip"}, media_type=known.kind)
        return Response(known.plain, headers=headers, media_type=known.kind)
