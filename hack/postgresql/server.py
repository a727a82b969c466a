"""Makes a PostgreSQL cluster in a temporary folder and runs it for as long as somebody needs it."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from hack.kubernetes import guard
from hack.ports import free_ports

WITHIN_S: Final = 60
USER: Final = "quorate"
_ACCOUNTS: Final = ("postgres", "nobody")


class NoPostgresqlError(Exception):
    """PostgreSQL is not installed, or can't run here."""


@dataclass(frozen=True, slots=True)
class PrivateServer:
    """One server. `password` is that of USER, who may do everything there; `url` has both."""

    host: str
    port: int
    password: str

    def url(self, database: str = "postgres") -> str:
        """With the password: for tests, whose server nobody else can reach for long."""
        return f"postgresql://{USER}:{self.password}@{self.host}:{self.port}/{database}"

    @classmethod
    def at(cls, url: str) -> PrivateServer:
        """The one of this URL."""
        parts = urlsplit(url)
        return cls(parts.hostname or "", parts.port or 0, parts.password or "")


def find_binaries() -> Path:
    """The folder with `initdb` and `postgres`: of the newest version that Debian or the like installed, else of PATH.

    Raises NoPostgresqlError.
    """
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name))
    for folder in reversed(installed):
        if (folder / "initdb").exists():
            return folder
    found = shutil.which("initdb")
    if found is None:
        raise NoPostgresqlError("PostgreSQL is not installed here: `apt-get install postgresql`, or the like.")
    return Path(found).resolve().parent


@contextmanager
def private_server() -> Iterator[PrivateServer]:
    """A server that ends with the block, or with this process however it ends. Raises NoPostgresqlError."""
    binaries = find_binaries()
    with tempfile.TemporaryDirectory(prefix="quorate-postgresql-") as name:
        folder, password = Path(name), secrets.token_urlsafe(16)
        account = account_to_run_as()
        (folder / "password").write_text(password)
        if account is not None:
            for path in (folder, folder / "password"):
                os.chown(path, account.pw_uid, account.pw_gid)
        as_account = words_to_become(account)
        make_cluster(binaries, folder, as_account)
        (port,) = free_ports(1)
        server = PrivateServer("127.0.0.1", port, password)
        # SIGQUIT has the server end at once, its children and shared memory with it.
        guarded = guard.start({"postgres": [*as_account, *_command(binaries, folder, port)]}, folder, signal.SIGQUIT)
        try:
            _wait(server, guarded, folder / "postgres.log")
            yield server
        finally:
            guard.stop(guarded)


def account_to_run_as() -> pwd.struct_passwd | None:
    """As whom it runs: PostgreSQL refuses root. None: as this user."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    for name in _ACCOUNTS:
        if name in known:
            return known[name]
    raise NoPostgresqlError(f"PostgreSQL refuses to run as root, and there is no account {' or '.join(_ACCOUNTS)}.")


def words_to_become(account: pwd.struct_passwd | None) -> list[str]:
    """What a command begins with that runs as this account."""
    if account is None:
        return []
    return ["setpriv", f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups", "--"]


def make_cluster(binaries: Path, folder: Path, as_account: list[str]) -> None:
    """A cluster whose language sorts otherwise than by code point, as most do: Quorate must not depend on it."""
    command = [
        *as_account,
        *(str(binaries / "initdb"), "-D", str(folder / "data"), "-U", USER, "-E", "UTF8", "--no-sync"),
        *("--auth=scram-sha-256", f"--pwfile={folder / 'password'}"),
        *("--locale=C.UTF-8", "--locale-provider=icu", "--icu-locale=en-US"),
    ]
    made = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise NoPostgresqlError(f"initdb failed: {made.stderr.strip()}")


def _command(binaries: Path, folder: Path, port: int) -> list[str]:
    settings = {
        "listen_addresses": "127.0.0.1",
        "port": str(port),
        "unix_socket_directories": str(folder),
        "max_connections": "200",
        # A crash here ends a process and not the machine, so nothing need wait for the disk.
        "fsync": "off",
    }
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    return [str(binaries / "postgres"), "-D", str(folder / "data"), *options]


def _wait(server: PrivateServer, guarded: subprocess.Popen[bytes], log: Path) -> None:
    import psycopg

    deadline = time.monotonic() + WITHIN_S
    while True:
        try:
            psycopg.connect(server.url()).close()
        except psycopg.OperationalError as error:
            if guarded.poll() is not None or time.monotonic() > deadline:
                raise NoPostgresqlError(f"PostgreSQL does not start: {log.read_text()}") from error
            time.sleep(0.05)
        else:
            return
