"""Refreshes the ID token of a kubeconfig's `auth-provider: oidc`, over TLS that is checked, and keeps it in its file."""

from __future__ import annotations

import base64
import binascii
import json
import os
import ssl
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote_plus

import aiohttp
import yaml
from kubernetes.aio.config import ConfigException
from kubernetes.aio.config.openid import OpenIDRequestor

from reconciler.kubernetes.client.refusals import CredentialsError

ISSUER_S: Final = 30.0
REFRESH_BEFORE_S: Final = 60.0
"""What is left of an ID token when it is refreshed: what a request takes, and clocks that differ."""


class Issuer(OpenIDRequestor):
    """The official requestor. Its own connector checks no certificate unless an authority is named, and fails if one is."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._tls = _trust(config)
        url = str(config.get("idp-issuer-url", ""))
        if not url.startswith("https://"):
            raise CredentialsError(f"idp-issuer-url {url!r} is not https. Name the issuer's https:// address")
        super().__init__(str(config.get("client-id", "")), str(config.get("client-secret") or ""), url)

    def _get_connector(self) -> aiohttp.TCPConnector:
        return aiohttp.TCPConnector(ssl=self._tls)

    def _client_session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            headers={**self._default_headers, "Authorization": f"Basic {self._basic()}"},
            connector=self._get_connector(),
            raise_for_status=True,
            trust_env=False,
            timeout=aiohttp.ClientTimeout(total=ISSUER_S),
        )

    async def _get(self, client: aiohttp.ClientSession, *arguments: Any, **more: Any) -> Any:
        return await super()._get(client, *arguments, allow_redirects=False, **more)

    async def _post(self, client: aiohttp.ClientSession, *arguments: Any, **more: Any) -> Any:
        # A redirect would take the refresh token to wherever it leads.
        return await super()._post(client, *arguments, allow_redirects=False, **more)

    async def _get_well_known(self, client: aiohttp.ClientSession) -> dict[str, Any]:
        found: dict[str, Any] = await super()._get_well_known(client)
        if not str(found["token_endpoint"]).startswith("https://"):
            raise ConfigException("its token endpoint is not https")
        return found

    def _basic(self) -> str:
        """RFC 6749, section 2.3.1: both are form-encoded first."""
        return base64.b64encode(f"{quote_plus(self._client_id)}:{quote_plus(self._client_secret)}".encode()).decode()


async def refresh_tokens(place: str, config: dict[str, Any]) -> dict[str, str]:
    """The tokens that the issuer gives for the refresh token: `id-token` and `refresh-token`. Raises CredentialsError."""
    if not config.get("refresh-token"):
        raise CredentialsError(f"{place}: the ID token has ended, and there is no refresh-token. Log in anew")
    try:
        answer = await Issuer(config).refresh_token(config["refresh-token"])
        given = {"id-token": str(answer["id_token"]), "refresh-token": str(config["refresh-token"])}
        if answer.get("refresh_token"):  # only issuers that rotate them send one
            given["refresh-token"] = str(answer["refresh_token"])
    except CredentialsError as error:
        raise CredentialsError(f"{place}: {error}") from error
    except (TimeoutError, ConfigException, aiohttp.ClientError, OSError, KeyError, TypeError, ValueError) as error:
        why = str(error) or type(error).__name__
        raise CredentialsError(
            f"{place}: {config.get('idp-issuer-url')} gave no new ID token: {why}. Log in anew, or see to the issuer"
        ) from error
    return given


def ends_at(token: str) -> float | None:
    """When an ID token ends, in seconds since 1970; None: it does not say. Raises ValueError."""
    parts = token.split(".")
    if len(parts) != 3:
        raise ValueError("it is no JWT of three parts")
    # The official client decodes this as plain base64, which fails on the - and _ of JWTs.
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return float(claims["exp"]) if claims.get("exp") is not None else None
    except (binascii.Error, UnicodeDecodeError, AttributeError, TypeError) as error:
        raise ValueError(f"its claims can't be read: {error}") from error


def keep(path: Path, user: str, tokens: dict[str, str]) -> None:
    """Write tokens into the kubeconfig they came from, whole or not at all: an issuer that rotates takes the old ones no more."""

    def put(content: Any) -> None:
        for entry in content["users"]:
            if entry["name"] == user:
                entry["user"]["auth-provider"]["config"].update(tokens)

    # A file that can't be written, such as a mounted Secret, or in which that user stands no more, is left: this process goes on
    # with what it has in memory.
    with suppress(OSError, KeyError, TypeError, yaml.YAMLError):
        _rewrite(path.resolve(), put)


def _rewrite(path: Path, change: Callable[[Any], None]) -> None:
    content = yaml.safe_load(path.read_bytes())
    change(content)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # for this user alone
    try:
        with os.fdopen(descriptor, "w") as file:
            yaml.safe_dump(content, file, sort_keys=False)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _trust(config: dict[str, Any]) -> ssl.SSLContext:
    data, file = config.get("idp-certificate-authority-data"), config.get("idp-certificate-authority")
    try:
        authority = base64.b64decode(data, validate=True).decode() if data else None
        return ssl.create_default_context(cafile=None if data else file or None, cadata=authority)
    except (OSError, ValueError) as error:
        raise CredentialsError(
            f"the issuer's certificate authority can't be read: {error}. It has to be PEM"
        ) from error
