"""A receiver of webhooks, a real HTTP server that answers as a test says."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any, NamedTuple


class Got(NamedTuple):
    """One request, as it came."""

    headers: Mapping[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Receiver:
    """`statuses` are answered one after the other, then 204. While `hung` is set requests wait for `released`."""

    url: str = ""
    got: list[Got] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    answer_headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    hung: bool = False
    released: Event = field(default_factory=Event)

    def ids(self) -> list[str]:
        """In the order in which they came, repeats once."""
        return list(dict.fromkeys(got.id for got in self.got))


@contextmanager
def receiving(port: int = 0) -> Iterator[Receiver]:
    """A server on loopback, until the block ends."""
    made = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["content-length"])
            body = self.rfile.read(length)
            if len(body) < length:
                return  # Who sent it was killed in the middle of it.
            made.got.append(Got({name.lower(): value for name, value in self.headers.items()}, body))
            if made.hung:
                made.released.wait(60)
            self.send_response(made.statuses.pop(0) if made.statuses else 204)
            for name, value in made.answer_headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(made.body)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    made.url = f"http://127.0.0.1:{server.server_port}/hook"
    try:
        yield made
    finally:
        made.released.set()
        server.shutdown()
        thread.join()
        server.server_close()


def until(what: str, reached: Any, patience_s: float = 60) -> None:
    """Wait for something; generous, because machines are slow and busy."""
    deadline = time.monotonic() + patience_s
    while not reached():
        assert time.monotonic() < deadline, f"never came about: {what}"
        time.sleep(0.01)
