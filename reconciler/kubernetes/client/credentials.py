"""Where the API server is and as whom to speak to it: from a kubeconfig, or from what a pod is given."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from reconciler.model.clock import Clock

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_READ_EVERY_S = 60.0
"""A pod's token lives for an hour and is renewed in its file after most of it; client-go looks once a minute too."""


class CredentialsError(Exception):
    """There is no way to the API server. A person acts; the message says place, problem and fix."""


class FixedToken:
    """A token that stays what it is; empty: none."""

    def __init__(self, token: str) -> None:
        self._token = token

    def now(self) -> str:
        """The token."""
        return self._token


class TokenFile:
    """A token in a file that somebody else renews. Raises CredentialsError where it can't be read at first."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._token = self._read()
        self._read_s = clock.monotonic_s()

    def now(self) -> str:
        """The token as it was read last, at most TOKEN_READ_EVERY_S ago where the file can be read."""
        if self._clock.monotonic_s() - self._read_s >= TOKEN_READ_EVERY_S:
            self._read_s = self._clock.monotonic_s()
            # The last one is good for minutes yet. A file that can't be read just now must end nothing.
            with suppress(CredentialsError):
                self._token = self._read()
        return self._token

    def _read(self) -> str:
        token = _text(self._path).strip()
        if not token:
            raise CredentialsError(f"{self._path}: holds no token. Mount one, or name another file")
        return token


@dataclass(frozen=True, slots=True)
class Credentials:
    """`server`: where, such as https://api.example:6443. `server_name`: whom its certificate has to name, if not the address."""

    server: str
    tls: ssl.SSLContext
    token: FixedToken | TokenFile
    server_name: str | None = None


def in_cluster(environment: Mapping[str, str], clock: Clock, folder: Path = SERVICE_ACCOUNT) -> Credentials:
    """What a pod is given: the service's address and its service account's token. Raises CredentialsError."""
    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise CredentialsError("KUBERNETES_SERVICE_HOST is not set: this is no pod. Name a kubeconfig instead")
    address = f"[{host}]" if ":" in host else host
    return Credentials(
        f"https://{address}:{port}", trusting(_text(folder / "ca.crt")), TokenFile(folder / "token", clock)
    )


def trusting(authority: str | None) -> ssl.SSLContext:
    """TLS 1.2 or newer to a server that this authority (PEM) vouches for; None: those that the system trusts."""
    try:
        context = ssl.create_default_context(cadata=authority)
    except (ssl.SSLError, ValueError) as error:
        raise CredentialsError(
            f"The cluster's certificate authority can't be read: {error}. It has to be PEM"
        ) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else error
        raise CredentialsError(f"{path}: can't be read: {why}. Check that it is there and readable") from error
