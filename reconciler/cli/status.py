"""`quorate status`: how the control plane stands."""

from __future__ import annotations

from collections.abc import Iterator

import click

from reconciler.api.payloads import Condition, Status
from reconciler.cli.comparison_report import print_comparison
from reconciler.cli.connection import api_client, server_option
from reconciler.cli.output import output_option, print_json
from reconciler.cli.phrases import short_list, short_revision
from reconciler.cli.tables import print_fields, print_table
from reconciler.cli.times import local
from reconciler.model.broken_limit import BrokenLimit
from reconciler.model.watch_status import FollowedKind


@click.command(short_help="Say how the control plane stands.")
@output_option("text", "json")
@server_option
def status(output: str, server: str | None) -> None:
    """Say which control plane leads, which policy revision is in force, how following Git goes, and how many jobs are live.

    Below stand limits that were lowered below what their queues hold, with the time by which they are to be kept again. Then comes
    what users have put in force by hand. Where jobs are pods, it says how far each kind of object is followed. Beside Slurm, it
    says which jobs a round would have started earlier, let wait or evicted, and how many GPUs were in use by both.
    """
    with api_client(server) as client:
        found, url = client.status(), client.server
    if output == "json":
        print_json(found)
        return
    print_fields(_fields(found, url))
    click.echo()
    rows = (
        (each.type, str(each.status), each.reason, "" if _is_repeated(each) else each.message)
        for each in found.conditions
    )
    print_table(("CONDITION", "STATUS", "REASON", "MESSAGE"), rows)
    if found.drift:
        revision = short_revision(found.last_attempted_revision)
        click.echo(f"\nWhat {revision} would do, beside what was accepted (quorate plan --held has the rest):")
        drift = ((each.what, each.accepted, each.now, "beyond" if each.beyond else "") for each in found.drift)
        print_table(("FIGURE", "ACCEPTED", "NOW", ""), drift)
    if found.broken_limits:
        click.echo("\nLimits that are to be kept again:")
        headings = "QUEUE", "GPU TYPE", "HELD", "MAX", "UNTIL", "EVICTED THEN"
        print_table(headings, map(_limit, found.broken_limits), right=("HELD", "MAX"))
    kinds = [kind for kind in found.followed if not kind.is_absent]
    if kinds:
        click.echo("\nWhat is followed of the cluster:")
        print_table(("KIND", "VERSION", "OBJECTS", "BREAKS", "STATE"), map(_kind, kinds), right=("OBJECTS", "BREAKS"))
    if found.beside is not None:
        print_comparison(found.beside)
    if found.by_hand:
        click.echo("\nBy hand, beside what Git says:")
        by_hand = (
            (each.kind, str(each.subject), each.author, local(each.until), each.reason) for each in found.by_hand
        )
        print_table(("WHAT", "OF", "BY", "UNTIL", "REASON"), by_hand)


def _is_repeated(condition: Condition) -> bool:
    """Of how Git is followed one is true, and the others carry its message; any other says what is wrong when it is not true."""
    return condition.type in ("Ready", "Reconciling", "Stalled") and not condition.status


def _fields(found: Status, url: str) -> Iterator[tuple[str, str]]:
    yield "Server", url
    yield "Leader", f"{found.holder or 'none'}, epoch {found.epoch}"
    yield "Policy in force", short_revision(found.last_applied_revision) or "none yet"
    if found.last_attempted_revision != found.last_applied_revision:
        yield "Policy attempted", short_revision(found.last_attempted_revision)
    if found.looked_at is not None:
        yield "Git looked at", local(found.looked_at)
    yield "Jobs", ", ".join(f"{number} {state}" for state, number in found.live_jobs.items()) or "none live"


def _kind(kind: FollowedKind) -> tuple[str, ...]:
    return kind.kind, kind.version, str(kind.objects), str(kind.breaks), kind.state


def _limit(broken: BrokenLimit) -> tuple[str, ...]:
    figures = broken.queue, broken.what, str(broken.held), str(broken.max)
    if broken.deadline is None:
        return *figures, "", "none"
    return *figures, local(broken.deadline), short_list(broken.jobs) or f"none (evict: {broken.evict})"
