"""`quorate showback`: what became of all GPU time, which queue, user, class, job or GPU type had it, and what it costs."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args
from zoneinfo import ZoneInfo

import click

from reconciler.analysis.showback.focus import (
    FOCUS_VERSIONS,
    FocusLine,
    FocusVersion,
    columns_of,
    corrections,
    focus_lines,
    rows_of,
)
from reconciler.analysis.showback.parquet import ParquetUnavailableError, parquet_of
from reconciler.analysis.showback.statement import ShowbackBy, ShowbackRow
from reconciler.api.showback_payloads import CapacityRow, Showback
from reconciler.cli.connection import api_client, server_option
from reconciler.cli.exits import ExitCode
from reconciler.cli.inputs import unreadable
from reconciler.cli.output import CommandFailedError, csv_lines, output_option, print_warning
from reconciler.cli.phrases import gpu_hours
from reconciler.cli.status_line import busy
from reconciler.cli.tables import print_table
from reconciler.cli.times import local, moment_of, zone_of
from reconciler.model.spans import span
from solver.model.document import encode
from solver.model.quantities import Instant
from solver.plan.reason import count

SHOWN_MAX: Final = 40
"""Rows of a table; what is left is one more row. The other formats have all."""
_STATES: Final = ("allocated", "idle", "reserved", "unhealthy", "partitioning")
_COLUMNS: Final = tuple(ShowbackRow.__struct_fields__)


@click.command(short_help="Show what became of all GPU time, and what it costs.")
@click.option(
    "--from", "since", default="7d", show_default=True, metavar="TIME", help="A span before now, a date or a time."
)
@click.option("--to", default="", metavar="TIME", help="As --from; a date is its begin. Now, unless stated.")
@click.option(
    "--by", type=click.Choice(get_args(ShowbackBy)), default="queue", show_default=True, help="What has a row."
)
@click.option(
    "--time-zone", metavar="ZONE", help="Of dates, and of times that are shown; this machine's unless stated."
)
@output_option("table", "json", "csv", "parquet", "focus")
@click.option(
    "--focus",
    "version",
    type=click.Choice(FOCUS_VERSIONS),
    default="1.2",
    show_default=True,
    help="The version of -o focus.",
)
@click.option(
    "--per", type=click.Choice(["day", "month"]), default="day", show_default=True, help="Charge period of -o focus."
)
@click.option("--billed-by", default="Quorate", show_default=True, metavar="NAME", help="The issuer in -o focus.")
@click.option(
    "--issued",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="An earlier -o focus of this window: write only what has to be added to it; repeatable.",
)
@click.option(
    "--invoiced-until", default="", metavar="DATE", help="What --issued says of months before this was invoiced."
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE",
    help="Write to a file; -o parquet has to.",
)
@server_option
def showback(
    since: str,
    to: str,
    by: ShowbackBy,
    time_zone: str | None,
    output: str,
    out: Path | None,
    server: str | None,
    **focus: Any,
) -> None:
    """Show GPU time by what had it: allocated, active, lost to evictions and failures, waited for, and what it costs.

    It is counted from claims, not from samples: of each GPU and moment exactly one state holds, and the states add up to the
    capacity. What was allocated is active or idle-held as far as that was measured; the rest is unknown, never 0. Tables show
    hours, all other formats seconds, exactly.
    """
    zone = zone_of(time_zone)
    export = _Export(**focus)
    if export.issued and output != "focus":
        raise CommandFailedError("--issued is for -o focus", exit_code=ExitCode.USAGE)
    if output == "parquet" and out is None:
        fix = "Name one with --out FILE: a Parquet file is not text."
        raise CommandFailedError("-o parquet needs a file", fix=fix, exit_code=ExitCode.USAGE)
    issued = [line for file in export.issued for line in _issued(file, export.version)]
    with api_client(server) as client, busy("adding up"):
        found = client.past.showback(
            by, moment_of(since, zone), moment_of(to, zone), export.per if output == "focus" else ""
        )
    _warn(found)
    match output:
        case "table":
            _print(found, zone)
        case "json":
            _write(out, [encode(found).decode()])
        case "csv":
            _write(out, csv_lines(_COLUMNS, ([getattr(row, name) for name in _COLUMNS] for row in found.rows)))
        case "parquet":
            _write_bytes(out, _parquet(found))
        case _:
            _write(out, _focus(found, export, issued))


class _Export(NamedTuple):
    """How -o focus is written."""

    version: FocusVersion
    per: str
    billed_by: str
    issued: tuple[Path, ...]
    invoiced_until: str


def _parquet(found: Showback) -> bytes:
    told = {"by": found.by, "start": str(found.start), "end": str(found.end), "currency": found.currency}
    try:
        return parquet_of(found.rows, told)
    except ParquetUnavailableError as error:
        fix = "Install it: pip install 'quorate[parquet]'"
        raise CommandFailedError(f"-o parquet: {error}", fix=fix) from error


def _focus(found: Showback, export: _Export, issued: Sequence[FocusLine]) -> Iterator[str]:
    if not found.currency:
        raise CommandFailedError("nothing has a price", fix="Put a RateCard into the policy repository.")
    lines = focus_lines(found.charges, found.currency, export.billed_by, export.version)
    if export.issued:
        lines = corrections(issued, lines, _day(export.invoiced_until) if export.invoiced_until else None)
    return csv_lines(columns_of(export.version), rows_of(lines, export.version))


def _day(written: str) -> Instant:
    try:
        return Instant.parse(f"{written}T00:00:00Z")
    except ValueError:
        fix = "Write the first day of a month, as 2026-11-01: billing periods are months of UTC."
        raise CommandFailedError(f"--invoiced-until: {written} is no date", fix=fix, exit_code=ExitCode.USAGE) from None


def _issued(file: Path, version: FocusVersion) -> Iterator[FocusLine]:
    """What was written before. Raises CommandFailedError for a file that is no such export."""
    with file.open(encoding="utf-8", newline="") as opened:
        reader = csv.DictReader(opened)
        if tuple(reader.fieldnames or ()) != columns_of(version):
            fix = f"Name a file that `quorate showback -o focus --focus {version}` wrote."
            raise CommandFailedError("it does not have the columns of such an export", place=str(file), fix=fix)
        for row in reader:
            if not _is_whole(row):
                fix = "Take the file as it was written: what it says is subtracted."
                raise CommandFailedError("the line is not whole", place=f"{file}:{reader.line_num}", fix=fix)
            yield FocusLine(row)


def _is_whole(row: Mapping[str | None, str | None]) -> bool:
    """Whether a line has all cells and no more, and numbers where they are counted with."""
    if None in row or None in row.values():
        return False
    try:
        return all(Decimal(row[name] or "").is_finite() for name in ("PricingQuantity", "ListUnitPrice"))
    except InvalidOperation:
        return False


def _warn(found: Showback) -> None:
    if found.start > found.asked_from:
        print_warning(f"capacity is on record from {found.start} on; what was before is not counted")
    if found.unwatched_seconds:
        told = span(int(found.unwatched_seconds * 1_000))
        print_warning(f"for {told} no control plane was there to see changes; what was so before counts for that time")
    if found.overheld:
        print_warning(
            f"{found.overheld} GPU-seconds were held by two jobs at once, and are counted once",
            fix="Report it, please.",
        )
    unpriced = sum((row.unpriced for row in found.rows), Decimal(0))
    if found.currency and unpriced:
        print_warning(f"{gpu_hours(unpriced)} GPU-hours have no price: no RateCard or rate fits them")


def _print(found: Showback, zone: ZoneInfo | None) -> None:
    click.echo(f"from {local(found.start, zone)} to {local(found.end, zone)}")
    click.echo()
    kinds: list[list[str]] = []
    for kind in found.capacity:
        for state in _STATES:
            kinds += _state_line(kind, state)
    print_table(("POOL", "GPU TYPE", "STATE", "GPU-HOURS", "SHARE"), kinds, right=("GPU-HOURS", "SHARE"))
    click.echo()
    heading = found.by.upper().replace("-", " ")
    is_measured = any(row.active is not None for row in found.rows)
    measured = ("ACTIVE", "IDLE-HELD") if is_measured else ()
    headings = [heading, "ALLOCATED", *measured, "EVICTED", "FAILED", "WAITING"]
    headings += [found.currency] if found.currency else []
    shown = [*found.rows[:SHOWN_MAX], *_rest(found.rows[SHOWN_MAX:])]
    lines = [_line(row, found, is_measured) for row in shown]
    print_table(headings, lines, right=headings[1:])
    click.echo()
    click.echo("GPU-hours. EVICTED and FAILED are work lost since the last checkpoint.")
    if is_measured:
        click.echo("ACTIVE and IDLE-HELD are what was measured of ALLOCATED; +?: not all was.")
    else:
        click.echo("How much of what was allocated was active is unknown: nothing was measured.")


def _state_line(kind: CapacityRow, state: str) -> Iterator[list[str]]:
    amount: Decimal = getattr(kind, state)
    if amount:
        share = f"{100 * amount / kind.capacity:.1f} %"
        yield [kind.pool or "(unknown)", kind.gpu_type or "(unknown)", state, gpu_hours(amount), share]


def _line(row: ShowbackRow, found: Showback, is_measured: bool) -> list[str]:
    name = "(others)" if row.redacted else row.name or ("(any)" if found.by == "gpu-type" else "(none)")
    measured = [_used(each, row) for each in (row.active, row.idle_held)] if is_measured else []
    lost = map(gpu_hours, (row.lost_to_evictions, row.lost_to_failures, row.waiting))
    return [name, gpu_hours(row.allocated), *measured, *lost, *([_money(row)] if found.currency else [])]


def _used(amount: Decimal | None, row: ShowbackRow) -> str:
    if amount is None:
        return "?" if row.allocated else ""
    return f"{gpu_hours(amount)}{'+?' if row.unmeasured else ''}"


def _money(row: ShowbackRow) -> str:
    if row.cost is None:
        return "?" if row.allocated else ""
    return f"{row.cost:.2f}{'+?' if row.unpriced else ''}"


def _rest(rows: Sequence[ShowbackRow]) -> Iterator[ShowbackRow]:
    """What is not shown, added up."""
    if not rows:
        return

    def total(name: str) -> Any:
        known = [value for row in rows if (value := getattr(row, name)) is not None]
        return sum(known, Decimal(0)) if known else None

    summed = {name: total(name) for name in _COLUMNS if name not in ("name", "queue", "user", "redacted")}
    yield ShowbackRow(name=f"({count(len(rows), 'more row')})", **summed)


def _write(out: Path | None, lines: Iterable[str]) -> None:
    if out is None:
        for line in lines:
            click.echo(line)
        return
    try:
        with out.open("w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
    except OSError as error:
        raise unreadable(error, out) from error


def _write_bytes(out: Path | None, content: bytes) -> None:
    assert out is not None, "it was asked for"  # noqa: S101
    try:
        out.write_bytes(content)
    except OSError as error:
        raise unreadable(error, out) from error
