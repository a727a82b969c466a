"""The options of `quorate run` that say how it is found: its names, and how it shows itself to identity providers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

OPTIONS = (
    click.option("--allow-host", multiple=True, metavar="NAME", help="One more host name that the API answers to."),
    click.option(
        "--external-url",
        metavar="URL",
        help="Where browsers find the console from outside, https://HOST: a proxy with TLS stands there. Its host is answered to, "
        "and identity providers send users back to it.",
    ),
    click.option(
        "--client-secret",
        multiple=True,
        metavar="ISSUER=FILE",
        help="The secret of the console's client at an identity provider of the AccessPolicy, if it has one (mode 0600).",
    ),
)


def console_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """All of them, in this order."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def console_settings(options: dict[str, Any]) -> dict[str, Any]:
    """Taken out of the options, as Settings has them. Raises click.UsageError."""
    hosts, external_url, client_secrets = (
        options.pop(name) for name in ("allow_host", "external_url", "client_secret")
    )
    return {
        "hosts": hosts,
        "external_url": _external_url(external_url),
        "client_secrets": _client_secrets(client_secrets),
    }


def _external_url(written: str | None) -> str:
    from reconciler.model.urls import external_origin

    if written is None:
        return ""
    try:
        return external_origin(written)
    except ValueError as error:
        raise click.UsageError(f"--external-url {written}: {error}.") from error


def _client_secrets(pairs: tuple[str, ...]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for pair in pairs:
        issuer, _, file = pair.partition("=")
        if not issuer or not file or issuer in found:
            raise click.UsageError(f"--client-secret {pair}: expected ISSUER=FILE, once for each issuer.")
        found[issuer] = Path(file)
    return found
