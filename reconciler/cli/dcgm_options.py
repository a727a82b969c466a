"""The options of `quorate run --kubernetes` that say where NVIDIA's dcgm-exporter can be read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from reconciler.cli.params import DurationParam

if TYPE_CHECKING:
    from reconciler.server.settings import DcgmSettings

OPTIONS = (
    click.option(
        "--dcgm-prometheus",
        metavar="URL",
        help="The Prometheus that scrapes dcgm-exporter: what GPUs do is read from its HTTP API. With --kubernetes.",
    ),
    click.option(
        "--dcgm-prometheus-token",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="What that Prometheus is asked with, if it wants a token (mode 0600). It is read for each question.",
    ),
    click.option(
        "--dcgm-exporters",
        metavar="URL",
        help="The exporters themselves, http://HOST:9400/metrics, at each address that HOST has, as a headless Service does.",
    ),
    click.option(
        "--dcgm-interval",
        type=DurationParam(),
        default="30s",
        show_default=True,
        help="How often the exporter collects (its --collect-interval). Percentiles need 6s or less.",
    ),
)


def dcgm_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """All of them, in this order."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def dcgm_settings(options: dict[str, Any]) -> DcgmSettings | None:
    """Taken out of the options. Raises click.UsageError."""
    from reconciler.server.settings import DcgmSettings

    names = ("dcgm_prometheus", "dcgm_exporters", "dcgm_prometheus_token", "dcgm_interval")
    prometheus, exporters, token, interval = (options.pop(name) for name in names)
    if prometheus and exporters:
        raise click.UsageError("--dcgm-prometheus and --dcgm-exporters tell the same. Leave one of them out.")
    if token is not None and not prometheus:
        raise click.UsageError("--dcgm-prometheus-token is for --dcgm-prometheus. Add that, or leave it out.")
    url = prometheus or exporters
    if url is None:
        return None
    if not 1_000 <= interval <= 60_000:
        raise click.UsageError(f"--dcgm-interval {interval}: between 1s and 1m, since use is kept by minutes.")
    where = urlsplit(url)
    if where.scheme not in (("http", "https") if prometheus else ("http",)) or not where.hostname:
        expected = "http://HOST:9090 or https://HOST" if prometheus else "http://HOST:9400/metrics"
        raise click.UsageError(
            f"{'--dcgm-prometheus' if prometheus else '--dcgm-exporters'} {url}: expected {expected}."
        )
    return DcgmSettings(url, prometheus is not None, token, interval)
