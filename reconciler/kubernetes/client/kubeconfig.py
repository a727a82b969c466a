"""Credentials from a kubeconfig: the current context of one file, with certificates or tokens."""

from __future__ import annotations

import base64
import binascii
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import yaml

from reconciler.kubernetes.client.credentials import (
    Credentials,
    CredentialsError,
    FixedToken,
    TokenFile,
    trusting,
)
from reconciler.model.clock import Clock

_FIX = {
    "exec": "Use a service account's token: kubectl create token NAME --duration 24h",
    "auth-provider": "Use a service account's token: kubectl create token NAME --duration 24h",
    "username": "Kubernetes has had no passwords since 1.19; use a token or a client certificate",
    "impersonate": "Name the account itself",
    "as": "Name the account itself",
    "insecure-skip-tls-verify": "Name the cluster's authority with certificate-authority-data",
    "proxy-url": "Set it up so that the server can be reached without",
}
"""What kubectl understands and this does not: refused, since leaving it out would speak as somebody else, or to somebody else."""


def from_kubeconfig(path: Path, clock: Clock, context: str | None = None) -> Credentials:
    """A context of a kubeconfig, the current one unless stated. Raises CredentialsError."""
    return _Kubeconfig(path, clock, context).credentials()


def namespace_in(path: Path, clock: Clock, context: str | None = None) -> str:
    """The namespace that a context means where none is named. Raises CredentialsError."""
    return _Kubeconfig(path, clock, context).namespace()


def kubeconfig_path(environment: Mapping[str, str]) -> Path:
    """Which kubeconfig kubectl would read: KUBECONFIG, else that of the home folder. Raises CredentialsError if several."""
    named = [name for name in environment.get("KUBECONFIG", "").split(":") if name]
    if len(named) > 1:
        raise CredentialsError(
            "KUBECONFIG names several files, which are not merged here. "
            "Make them one: kubectl config view --flatten --minify > FILE"
        )
    return Path(named[0]) if named else Path.home() / ".kube" / "config"


class _Kubeconfig:
    def __init__(self, path: Path, clock: Clock, context: str | None) -> None:
        self._path = path
        self._clock = clock
        self._wanted = context
        try:
            self._content = self._mapping(yaml.safe_load(path.read_bytes()), "the file")
        except OSError as error:
            raise self._error(f"can't be read: {error.strerror}", "Name another with KUBECONFIG") from error
        except yaml.YAMLError as error:
            raise self._error(f"is no YAML: {error}", "Make it anew") from error

    def credentials(self) -> Credentials:
        context = self._context()
        cluster = self._named("clusters", "cluster", context.get("cluster"))
        user = self._named("users", "user", context.get("user"))
        for part in (cluster, user):
            for key, fix in _FIX.items():
                if part.get(key):
                    raise self._error(f"{key} is not supported", fix)
        server = str(cluster.get("server", ""))
        if not server.startswith("https://"):
            raise self._error(f"the server {server!r} is not reached over https", "Name its https:// address")
        authority = self._bytes(cluster, "certificate-authority")
        tls = trusting(authority.decode(errors="replace") if authority else None)
        self._present(tls, user)
        name = cluster.get("tls-server-name")
        return Credentials(server.rstrip("/"), tls, self._token(user), str(name) if name else None)

    def namespace(self) -> str:
        return str(self._context().get("namespace") or "default")

    def _context(self) -> Mapping[str, Any]:
        return self._named("contexts", "context", self._wanted or self._content.get("current-context"))

    def _token(self, user: Mapping[str, Any]) -> FixedToken | TokenFile:
        if file := user.get("tokenFile"):
            return TokenFile(self._path.parent / str(file), self._clock)
        return FixedToken(str(user.get("token") or ""))

    def _present(self, tls: ssl.SSLContext, user: Mapping[str, Any]) -> None:
        certificate, key = self._bytes(user, "client-certificate"), self._bytes(user, "client-key")
        if not certificate or not key:
            return
        # Python reads them from files alone: they lie for a moment in a folder that is this user's alone.
        with tempfile.TemporaryDirectory() as folder:
            pair = Path(folder) / "client.pem"
            pair.touch(mode=0o600)
            pair.write_bytes(certificate + b"\n" + key)
            try:
                tls.load_cert_chain(pair, password="")
            except ssl.SSLError as error:
                raise self._error(f"the client certificate can't be used: {error}", "Make both anew") from error

    def _bytes(self, part: Mapping[str, Any], key: str) -> bytes:
        """What stands there in base64 (`key-data`), or in the file that is named, seen from the kubeconfig; empty: neither."""
        try:
            if encoded := part.get(f"{key}-data"):
                return base64.b64decode(str(encoded), validate=True)
            return (self._path.parent / str(part[key])).read_bytes() if part.get(key) else b""
        except (OSError, binascii.Error) as error:
            raise self._error(f"{key} can't be read: {error}", "Make it anew") from error

    def _named(self, several: str, one: str, name: object) -> Mapping[str, Any]:
        for entry in self._content.get(several) or ():
            if isinstance(entry, dict) and name and entry.get("name") == name:
                return self._mapping(entry.get(one), f"{one} {name}")
        raise self._error(f"there is no {one} {name!r}", "Choose one: kubectl config use-context NAME")

    def _mapping(self, found: object, what: str) -> Mapping[str, Any]:
        if not isinstance(found, dict):
            raise self._error(f"{what} is empty or no mapping", "Make it anew")
        return cast("Mapping[str, Any]", found)

    def _error(self, problem: str, fix: str) -> CredentialsError:
        return CredentialsError(f"{self._path}: {problem}. {fix}")
