"""`quorate calendar`: which windows a policy has, from files alone."""

from __future__ import annotations

from pathlib import Path

import click

from reconciler.analysis.reports.calendar import calendar_of, icalendar
from reconciler.cli.inputs import read_policies
from reconciler.cli.output import output_option, print_json
from reconciler.cli.params import InstantParam, cluster_option
from reconciler.cli.tables import print_table
from reconciler.cli.times import local, zone_of
from reconciler.model.clock import SystemClock
from solver.model.quantities import Instant

DAY_MS = 86_400_000


@click.command(short_help="Show the windows of Reservations and of quota.")
@click.argument("path", default=".", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--from", "since", type=InstantParam(), metavar="TIME", help="From when; now, unless stated.")
@click.option("--days", type=click.IntRange(1, 750), default=7, show_default=True, help="How many days.")
@click.option("--time-zone", metavar="ZONE", help="Of times that are shown; this machine's unless stated.")
@cluster_option
@output_option("table", "json", "ics")
def calendar(
    path: Path, since: Instant | None, days: int, time_zone: str | None, cluster: str | None, output: str
) -> None:
    """Show when the Reservations of the policy repository at PATH keep capacity, and when its queues have another quota.

    `-o ics` prints an iCalendar file, which programs that show calendars read.
    """
    zone, now = zone_of(time_zone), SystemClock().now()
    begin = now if since is None else since
    found = calendar_of(read_policies(path, cluster).policy, begin, begin.after(days * DAY_MS))
    if output == "json":
        print_json(found)
    elif output == "ics":
        click.echo(icalendar(found, now), nl=False)
    elif not found.windows:
        click.echo(f"no windows until {local(found.until, zone)}")
    else:
        rows = [
            [
                one.reservation or one.hours or "",
                local(one.start, zone),
                local(one.until, zone),
                one.keeps,
                one.kept_for,
                one.evict,
            ]
            for one in found.windows
        ]
        print_table(("WINDOW", "FROM", "UNTIL", "HOLDS", "FOR", "EVICTS"), rows)
