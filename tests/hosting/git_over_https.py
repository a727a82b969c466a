"""A repository host's Git over HTTPS: `git http-backend` on loopback, with accounts and a certificate of its own."""

from __future__ import annotations

import base64
import os
import ssl
import subprocess
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

ACCOUNTS = {"ada": "write", "ci": "read", "control-plane": "read"}
"""What each may do. Their passwords are their names."""


class Host:
    """Serves the bare repositories in `folder` at `/git/`, over TLS, while it is entered."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.certificate = folder / "certificate.pem"
        _certify(self.certificate)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    def url(self, user: str = "") -> str:
        """Where it is, for somebody with an account."""
        account = f"{user}:{user}@" if user else ""
        return f"https://{account}127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Host:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        host = self

        class Handler(BaseHTTPRequestHandler):
            """Hands each request to Git."""

            def do_GET(self) -> None:
                self._answer()

            def do_POST(self) -> None:
                self._answer()

            def log_message(self, *_: object) -> None:
                """Say nothing: pytest would print it among its own."""

            def _answer(self) -> None:
                user = _user(self.headers.get("authorization", ""))
                pushes = "receive-pack" in self.path
                if not user or (pushes and ACCOUNTS[user] != "write"):
                    self.send_response(403 if user else 401)
                    self.send_header("WWW-Authenticate", 'Basic realm="policy"')
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                said = subprocess.run(
                    ["git", "http-backend"], input=body, env=self._environment(user), capture_output=True, check=True
                ).stdout
                self._pass_on(said)

            def _environment(self, user: str) -> dict[str, str]:
                asked = urlsplit(self.path)
                return {
                    **os.environ,
                    "GIT_PROJECT_ROOT": str(host.folder),
                    "GIT_HTTP_EXPORT_ALL": "1",
                    "GIT_PROTOCOL": self.headers.get("git-protocol", ""),
                    "REMOTE_USER": user,
                    "REQUEST_METHOD": self.command,
                    "PATH_INFO": asked.path.removeprefix("/git"),
                    "QUERY_STRING": asked.query,
                    "CONTENT_TYPE": self.headers.get("content-type", ""),
                    "HTTP_CONTENT_ENCODING": self.headers.get("content-encoding", ""),
                }

            def _pass_on(self, said: bytes) -> None:
                """What a CGI program says: headers, an empty line, the body."""
                head, _, body = said.partition(b"\r\n\r\n")
                headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
                self.send_response(int(headers.pop("Status", "200").split()[0]))
                # Without a length the body would end where the connection does, which over TLS could be anybody's doing.
                for name, value in (headers | {"Content-Length": str(len(body))}).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

        return Handler


def _user(authorization: str) -> str:
    """Who asks; "" for nobody who has an account."""
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return ""
    user, _, password = base64.b64decode(encoded).decode().partition(":")
    return user if user in ACCOUNTS and user == password else ""


def _certify(file: Path) -> None:
    """A key and a certificate for 127.0.0.1 that its owner has signed, which Git believes if GIT_SSL_CAINFO names it."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(file), "-out", f"{file}.crt"],
        check=True, capture_output=True,
    )  # fmt: skip
    with file.open("ab") as both:
        both.write(Path(f"{file}.crt").read_bytes())
