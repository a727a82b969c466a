"""The options of `quorate run` for what watches it: metrics with an address and a token of their own, and traces."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from reconciler.cli.params import AddressParam

OPTIONS = (
    click.option(
        "--metrics-listen",
        type=AddressParam(),
        metavar="HOST:PORT",
        help="Serve /metrics there as well, and nothing else; port 0: any.  [default: with the API alone]",
    ),
    click.option(
        "--metrics-token",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="What is asked for there (mode 0600). It is read for each scrape. Beyond loopback there has to be one.",
    ),
    click.option(
        "--traces",
        is_flag=True,
        help="Send traces of passes by OTLP over HTTP, where OTEL_EXPORTER_OTLP_ENDPOINT says (needs `quorate[otel]`).",
    ),
)


def metrics_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """All of them, in this order."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def metrics_settings(options: dict[str, Any]) -> dict[str, Any]:
    """Taken out of the options, as Settings has them. Raises click.UsageError."""
    from reconciler.server.settings import MetricsSettings

    listen, token, traces = (options.pop(name) for name in ("metrics_listen", "metrics_token", "traces"))
    if listen is None and token is not None:
        raise click.UsageError("--metrics-token is asked for by --metrics-listen. Add that, or leave it out.")
    on = None if listen is None else MetricsSettings(listen.host, listen.port, token)
    return {"metrics": on, "traces": traces}
