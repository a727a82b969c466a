"""`quorate audit`: which user did what; and that what is on record is whole: verified, exported, anchored elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.cli.connection import api_client, server_option
from reconciler.cli.exits import ExitCode
from reconciler.cli.output import CommandFailedError, output_option, print_json, printable
from reconciler.cli.status_line import busy
from reconciler.cli.store import of_a_store, opened_store
from reconciler.cli.store_options import audit_key_file, audit_keys_option, key_file_of
from reconciler.cli.tables import print_table
from reconciler.cli.times import local, moment_of, zone_of
from solver.plan.reason import count

if TYPE_CHECKING:
    from reconciler.analysis.audit.findings import AuditFinding, AuditReport
    from reconciler.model.audit import AuditAnchor, AuditEntry, AuditKeys
    from solver.model.quantities import Instant

_EVENTS_MAX = 1_000


@click.group(short_help="Say which user did what, and verify that the record is whole.")
def audit() -> None:
    """The record of what was done. Every event and round is a link of a chain that is signed with a key outside the database."""


@audit.command(short_help="List what users and control planes did.")
@click.option("--who", default="", metavar="USER", help="Only what this user, or this control plane, did.")
@click.option("--what", multiple=True, metavar="KIND", help="Only events of this kind, such as cordoned; repeatable.")
@click.option("--subject", default="", metavar="NAME", help="Only what is about this job, node, queue or revision.")
@click.option("--since", default="7d", show_default=True, metavar="TIME", help="A span before now, a date or a time.")
@click.option("--to", default="", metavar="TIME", help="As --since; a date is its begin. Now, unless stated.")
@click.option(
    "--limit",
    type=click.IntRange(1, _EVENTS_MAX),
    default=100,
    show_default=True,
    help="How many at most, of which the newest are shown.",
)
@output_option("table", "json")
@server_option
def log(
    who: str, what: tuple[str, ...], subject: str, since: str, to: str, limit: int, output: str, server: str | None
) -> None:
    """List events, newest first: when, which user, what, about what and why."""
    zone = zone_of(None)
    begin, end = moment_of(since, zone), moment_of(to, zone)
    with api_client(server) as client:
        found = client.audit.events(who=who, what=what, subject=subject, since=begin, to=end, limit=limit)
    if output == "json":
        print_json(found)
    elif not found.items:
        click.echo("no events")
    else:
        events = [kept.event for kept in found.items]
        rows = [(local(each.time), each.actor, each.kind, each.subject, _first_line(each.cause)) for each in events]
        print_table(("TIME", "WHO", "WHAT", "SUBJECT", "WHY"), rows)
        if found.next:
            click.echo(f"the newest {limit}: there are more; see --limit", err=True)


@audit.command(short_help="Verify that nothing on record was changed or removed.")
@click.option(
    "--export",
    "exported",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Verify an export instead of a store.",
)
@of_a_store
@audit_keys_option
@click.option(
    "--anchors",
    multiple=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A file of anchors to compare with; repeatable.  [default: audit-anchors in --state, if it is there]",
)
@click.option(
    "--tags",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="REPO",
    help="Compare with the anchors in tags of this clone as well.",
)
@click.option("--signed", is_flag=True, help="Each of these tags has to have a signature that Git trusts.")
@output_option("text", "json")
@click.pass_context
def verify(
    ctx: click.Context,
    exported: Path | None,
    state: Path | None,
    store: str | None,
    store_password_file: Path | None,
    audit_keys: Path | None,
    anchors: tuple[Path, ...],
    tags: Path | None,
    signed: bool,
    output: str,
) -> None:
    """Verify the audit chain of a store, or of an export, with the audit keys. Exits with 9 if something is wrong."""
    from reconciler.analysis.audit.files import read_export
    from reconciler.analysis.audit.verification import verified
    from reconciler.protocols.audit import entries_of

    if signed and tags is None:
        raise click.UsageError("--signed is about --tags. Add that, or leave it out.")
    with _said(), ExitStack() as closing:
        keys = _keys(state, store, audit_keys)
        known = _anchors(state, store if exported is None else "", anchors, tags, signed=signed)
        if exported is not None:
            entries: Iterable[AuditEntry] = read_export(exported)
        else:
            found = closing.enter_context(opened_store(state, store, store_password_file, is_new=False))
            entries = entries_of(found.audit)
        with busy("verifying the audit chain"):
            report = verified(entries, keys, known)
    if output == "json":
        print_json(report)
    else:
        click.echo("\n".join(map(printable, _lines(report))))
    ctx.exit(ExitCode.OK if report.is_whole else ExitCode.AUDIT_BROKEN)


@audit.command(short_help="Write the audit chain to a file.")
@click.option(
    "--out",
    required=True,
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE",
    help="The file, one JSON document a line; compressed if its name ends in .gz.",
)
@of_a_store
@server_option
def export(
    out: Path, state: Path | None, store: str | None, store_password_file: Path | None, server: str | None
) -> None:
    """Write every link with what its record is: of a store, with --state or --store, else of the server."""
    from reconciler.analysis.audit.files import write_export
    from reconciler.model.clock import SystemClock
    from reconciler.protocols.audit import entries_of

    now = SystemClock().now()
    with _said(), busy("reading the audit chain"):
        if state is None and store is None:
            with api_client(server) as client:
                anchor = client.audit.page("events").anchor
                number = write_export(out, now, client.audit.entries(), anchor)
        else:
            with opened_store(state, store, store_password_file, is_new=False) as found:
                number = write_export(out, now, entries_of(found.audit), found.audit.anchor(now))
    click.echo(f"{number} entries written to {out}", err=True)


@audit.command(short_help="Note elsewhere how far the chain is.")
@of_a_store
@click.option(
    "--file",
    "to_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Append it to this file, which an attacker of the database can't write.",
)
@click.option(
    "--tag",
    "repository",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="REPO",
    help="Make it an annotated tag of this clone, quorate-audit/TIME, to be pushed.",
)
@click.option("--sign", is_flag=True, help="Sign the tag with the key that Git's configuration names.")
def anchor(
    state: Path | None,
    store: str | None,
    store_password_file: Path | None,
    to_file: Path | None,
    repository: Path | None,
    sign: bool,
) -> None:
    """Note how far the chain is, where `quorate audit verify` finds it: printed, in a file, or as a tag."""
    from reconciler.analysis.audit.files import append_anchor
    from reconciler.gitops.audit_tags import add_tag
    from reconciler.model.clock import SystemClock

    if sign and repository is None:
        raise click.UsageError("--sign is about --tag. Add that, or leave it out.")
    with _said(), opened_store(state, store, store_password_file, is_new=False) as found:
        made = found.audit.anchor(SystemClock().now())
        if made.is_empty:
            raise CommandFailedError(
                "the chain has not begun", place=found.database.place, fix="Run a control plane on it."
            )
        if to_file is not None and append_anchor(to_file, made):
            click.echo(f"{to_file}: it is there", err=True)
        if repository is not None:
            name = add_tag(repository, made, sign=sign)
            click.echo(f"{repository}: push it: git push origin {name}", err=True)
    print_json(made)


@audit.command("rotate-key", short_help="Let a new key sign from now on.")
@click.option(
    "--state",
    type=click.Path(file_okay=False, path_type=Path),
    help="The state folder that has the keys.  [default: $QUORATE_STATE, else quorate in the user's state folder]",
)
@audit_keys_option
def rotate_key(state: Path | None, audit_keys: Path | None) -> None:
    """Add a key to the file of audit keys. Control planes that have this file sign with it from now on, without a restart.

    The keys before it stay in the file: what they signed is verified with them.
    """
    from reconciler.access.audit_keys import add_key

    with _said():
        file = audit_keys or key_file_of(state)
        click.echo(f"{file}: key {add_key(file)} signs from now on", err=True)


def _keys(state: Path | None, store: str | None, audit_keys: Path | None) -> AuditKeys:
    """Raises CommandFailedError, AuditKeyError, TokenFileError."""
    file = audit_key_file(state, store, audit_keys)
    if file is None:
        fix = "Name the file of its control planes with --audit-keys."
        raise CommandFailedError("it takes the keys of the audit chain", place=str(store), fix=fix)
    return file.keys()


def _anchors(
    state: Path | None, store: str | None, files: Sequence[Path], tags: Path | None, *, signed: bool
) -> tuple[AuditAnchor, ...]:
    """Those to compare with. Raises AuditFileError, AuditTagError."""
    from reconciler.access.token_file import default_state_folder
    from reconciler.analysis.audit.files import read_anchors
    from reconciler.gitops.audit_tags import tagged_anchors
    from reconciler.server.folder import StateFolder

    own = StateFolder((state or default_state_folder()).absolute()).audit_anchors
    named = files or ((own,) if store is None and own.exists() else ())
    found = [each for path in named for each in read_anchors(path)]
    return (*found, *(tagged_anchors(tags, signed=signed) if tags is not None else ()))


@contextmanager
def _said() -> Iterator[None]:
    """Whatever a person can do something about, as a command says it."""
    from reconciler.access.audit_keys import AuditKeyError
    from reconciler.access.token_file import TokenFileError
    from reconciler.analysis.audit.files import AuditFileError
    from reconciler.gitops.audit_tags import AuditTagError

    try:
        yield
    except (AuditFileError, AuditKeyError, AuditTagError, TokenFileError) as error:
        raise CommandFailedError(str(error)) from error


def _lines(report: AuditReport) -> Iterator[str]:
    for chain in report.chains:
        if chain.since is None or chain.until is None:
            yield f"{chain.chain}: no links"
        else:
            bounds = f"links {chain.first} to {chain.last}, {local(chain.since)} to {local(chain.until)}"
            yield f"{chain.chain}: {count(chain.records, 'record')}, {bounds}, keys {', '.join(chain.keys)}"
    yield from report.notes
    yield f"{count(report.anchors, 'anchor')} compared"
    yield from map(_finding, report.findings)
    found = count(len(report.findings), "thing")
    yield "the audit chain is whole" if report.is_whole else f"the audit chain is BROKEN: {found} found"


def _finding(found: AuditFinding) -> str:
    link = "" if found.link is None else f" link {found.link}"
    record = "" if found.record is None else f" record {found.record}"
    return f"{found.problem}: {found.chain}{link}{record}: {found.message} ({_between(found.after, found.before)})"


def _between(after: Instant | None, before: Instant | None) -> str:
    told = [
        f"after {local(after)}" if after is not None else "",
        f"before {local(before)}" if before is not None else "",
    ]
    return ", ".join(filter(None, told)) or "at an unknown time"


def _first_line(cause: str) -> str:
    return next(iter(cause.splitlines()), "")
