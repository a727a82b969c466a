"""An HTTP server on loopback that stands in for the API of a repository host: routes, a token, and pages."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import NamedTuple, Self
from urllib.parse import parse_qs, unquote, urlsplit


class Request(NamedTuple):
    """What was asked: the parts of the path that vary, the query, the body."""

    parts: tuple[str, ...]
    query: dict[str, str]
    body: bytes


class Reply(NamedTuple):
    """What is answered."""

    status: int
    body: bytes = b"{}"
    headers: Mapping[str, str] = {}


class Route(NamedTuple):
    """A method and a pattern of paths, and who answers."""

    method: str
    pattern: str
    answer: Callable[[Request], Reply]


def in_json(said: object, status: int = 200) -> Reply:
    return Reply(status, json.dumps(said).encode())


def a_page(items: Sequence[object], request: Request, size_name: str) -> Reply:
    """A page of a list as GitLab and Gitea hand it out: its neighbour is in the header Link."""
    size, page = int(request.query.get(size_name, 20)), int(request.query.get("page", 1))
    shown = items[size * (page - 1) : size * page]
    more = size * page < len(items)
    links = {"Link": f'<https://elsewhere.example.com/?page={page + 1}>; rel="next"'} if more else {}
    return Reply(200, json.dumps(shown).encode(), links)


class HostServer:
    """Serves routes while it is entered; what `allows` doesn't let through is 401. `troubles` come before any other answer."""

    def __init__(self, routes: Sequence[Route], allows: Callable[[Mapping[str, str]], bool], prefix: str = "") -> None:
        self.asked: list[str] = []
        """Every request, as `GET /path`."""
        self.troubles: dict[str, list[Reply]] = {}
        """By the beginning of a request (`POST /api`): answers that are given once each, instead of the true one."""
        server = self

        class Handler(BaseHTTPRequestHandler):
            """Finds the route."""

            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # Or the body of each answer waits for the acknowledgement of its header.

            def do_GET(self) -> None:
                self._answer()

            def do_POST(self) -> None:
                self._answer()

            def do_PUT(self) -> None:
                self._answer()

            def do_PATCH(self) -> None:
                self._answer()

            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                headers = {name.lower(): value for name, value in self.headers.items()}
                reply = server._reply(routes, prefix, self.command, self.path, body) if allows(headers) else Reply(401)
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(reply.body)))
                self.end_headers()
                self.wfile.write(reply.body)

            def log_message(self, *_: object) -> None:
                """Say nothing: pytest would print it among its own."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def _reply(self, routes: Sequence[Route], prefix: str, method: str, path: str, body: bytes) -> Reply:
        asked = urlsplit(path)
        said = f"{method} {asked.path}"
        self.asked.append(said)
        for beginning, replies in self.troubles.items():
            if said.startswith(beginning) and replies:
                return replies.pop(0)
        query = {name: values[0] for name, values in parse_qs(asked.query).items()}
        for route in routes:
            found = re.fullmatch(route.pattern, asked.path.removeprefix(prefix))
            if found and method == route.method:
                return route.answer(Request(tuple(map(unquote, found.groups())), query, body))
        return Reply(404)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
