"""A token for https in `.netrc` of the home folder, as a Secret is mounted in Kubernetes: Git uses it, hardened as it is."""

from __future__ import annotations

import base64
import ssl
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from hack.kubernetes.certificates import Authority
from reconciler.gitops.source.errors import FetchFailedError
from reconciler.gitops.source.mirror import GitMirror
from tests.reconciler.gitops.source.origin import Origin

EXPECTED = "Basic " + base64.b64encode(b"quorate:token").decode()


class Guarded(SimpleHTTPRequestHandler):
    """A repository as files, to those who have the token."""

    def do_GET(self) -> None:
        if self.headers.get("Authorization") == EXPECTED:
            super().do_GET()
            return
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="git"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def url(origin: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    bare = tmp_path / "served" / "policy.git"
    subprocess.run(["git", "clone", "--quiet", "--bare", str(origin.folder), str(bare)], check=True)
    subprocess.run(["git", "update-server-info"], cwd=bare, check=True)
    authority, pem = Authority(), tmp_path / "server.pem"
    pem.write_bytes(b"".join(authority.server()))
    (tmp_path / "authority.pem").write_bytes(authority.pem)
    monkeypatch.setenv("GIT_SSL_CAINFO", str(tmp_path / "authority.pem"))
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Guarded, directory=str(bare.parent))) as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"https://127.0.0.1:{server.server_port}/policy.git"
        server.shutdown()


@pytest.mark.thorough
def test_git_takes_the_token_from_the_home_folder(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "secret"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    mirror = GitMirror(tmp_path / "mirror.git", url)
    with pytest.raises(FetchFailedError, match="could not read Username"):
        mirror.fetch("main")
    (home / ".netrc").write_text("machine 127.0.0.1 login quorate password token\n")
    assert mirror.fetch("main") == mirror.fetched()
