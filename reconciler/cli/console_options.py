"""The options of `quorate run` that are for browsers: where they find it, and how it shows itself to identity providers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

OPTIONS = (
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
    """Both, in this order."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def external_url_of(written: str | None) -> str:
    """The origin of the console; "": none is known. Raises click.UsageError."""
    from reconciler.model.urls import external_origin

    if written is None:
        return ""
    try:
        return external_origin(written)
    except ValueError as error:
        raise click.UsageError(f"--external-url {written}: {error}.") from error


def client_secrets_of(pairs: tuple[str, ...]) -> dict[str, Path]:
    """Files by issuer. Raises click.UsageError."""
    found: dict[str, Path] = {}
    for pair in pairs:
        issuer, _, file = pair.partition("=")
        if not issuer or not file or issuer in found:
            raise click.UsageError(f"--client-secret {pair}: expected ISSUER=FILE, once for each issuer.")
        found[issuer] = Path(file)
    return found
