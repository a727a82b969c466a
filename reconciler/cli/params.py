"""Types of options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

import click

from reconciler.model.clock import SystemClock
from solver.model.quantities import Duration, Instant


def cluster_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """The option `--cluster`, the same on every command that reads policies. Passed as `cluster`."""
    told = "The cluster whose policy is meant, where the repository has several."
    return click.option("--cluster", metavar="NAME", help=told)(command)


class DurationParam(click.ParamType[Duration]):
    """A positive span such as 5s or 1h30m."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Duration:
        """Read it; a usage error where it is none."""
        if isinstance(value, Duration):
            return value
        try:
            span = Duration.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return span if span > 0 else self.fail("it must be longer than 0s", param, ctx)


def keep_logs_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """The option `--keep-logs` of what runs tasks. Passed as `keep_logs`."""
    told = (
        "Delete what attempts left in --state, their logs too, so long after their end was recorded.  [default: never]"
    )
    return click.option("--keep-logs", type=DurationParam(), metavar="DURATION", help=told)(command)


class InstantParam(click.ParamType[Instant]):
    """A date (midnight UTC) or an RFC 3339 time."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Instant:
        """Read it; a usage error where it is neither."""
        text = str(value)
        try:
            return Instant.parse(text if "T" in text else f"{text}T00:00:00Z")
        except ValueError:
            self.fail(f"{text!r} is no date such as 2017-10-09 and no time such as 2017-10-09T06:00:00Z", param, ctx)


class LocalInstantParam(click.ParamType[Instant]):
    """A time, by this machine's clock unless it says its zone; or how long from now."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Instant:
        """Read it; a usage error where it is none."""
        if isinstance(value, Instant):
            return value
        text = str(value)
        with suppress(ValueError):
            span = Duration.parse(text)
            return SystemClock().now().after(span) if span > 0 else self.fail("it must be later than now", param, ctx)
        try:
            written = datetime.fromisoformat(text)
        except ValueError:
            told = "is no time such as 2026-12-01T08:00 or 2026-12-01T08:00:00+01:00, and no duration such as 6h"
            self.fail(f"{text!r} {told}", param, ctx)
        return Instant(round(written.timestamp() * 1_000))


class Address(NamedTuple):
    """Where to listen. Port 0 takes a free one."""

    host: str
    port: int


class AddressParam(click.ParamType[Address]):
    """HOST:PORT; an IPv6 address stands in brackets."""

    name = "host:port"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Address:
        """Split it; a usage error where it is none."""
        if isinstance(value, Address):
            return value
        host, colon, port = str(value).rpartition(":")
        bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        if not colon or not bare or (":" in bare and bare == host) or not port.isdecimal() or int(port) > 65535:
            self.fail(f"{value!r} is no HOST:PORT such as 127.0.0.1:7717 or [::1]:7717", param, ctx)
        return Address(bare, int(port))
