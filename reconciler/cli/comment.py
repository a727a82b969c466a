"""`quorate comment`: the plan that each open pull request's own run left, as one comment that is kept up to date."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import click

from reconciler.access.token_file import TokenFileError, read_foreign_token, token_in_environment
from reconciler.api.payloads import Payload
from reconciler.cli.exits import ExitCode
from reconciler.cli.output import CommandFailedError, output_option, print_json, print_warning
from reconciler.cli.tables import print_table
from reconciler.client.transport import LOOPBACK
from reconciler.gitops.comments.upkeep import CommentOutcome, CommentUpkeep

if TYPE_CHECKING:
    from reconciler.gitops.comments.hosts import PullRequestHost

_VARIABLE: Final = "QUORATE_HOST_TOKEN"
_FILE_VARIABLE: Final = f"{_VARIABLE}_FILE"

_API: Final = {"gitlab": "/api/v4", "gitea": "/api/v1"}
_SOURCE: Final = {"gitlab": "plan", "gitea": "quorate-comment"}

_WORDS: Final[dict[CommentOutcome, str]] = {
    "begun": "begun",
    "updated": "updated",
    "unchanged": "says that already",
    "no-plan": "no run on its newest commit has left a plan",
    "not-a-plan": "left alone: what its run left is no plan",
    "overtaken": "left to its newer run: it has newer commits, or is closed",
    "failed": "failed",
}


class CommentUpkeepList(Payload, frozen=True, kw_only=True):
    """What was done, pull request by pull request."""

    items: tuple[CommentUpkeep, ...]


@click.command(short_help="Keep the plan up to date as a comment on pull requests.")
@click.option("--host", required=True, type=click.Choice(tuple(_API)), help="What it speaks; Forgejo is gitea here.")
@click.option("--url", required=True, help="Where the host is, as a browser would ask for it.")
@click.option("--repository", required=True, metavar="PATH", help="Which one, as in its URL: lab/policy.")
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help=f"The host's token, in a file (mode 0600); else {_VARIABLE}, else the file that {_FILE_VARIABLE} names.",
)
@click.option(
    "--from",
    "sources",
    multiple=True,
    metavar="NAME",
    help="The job (GitLab) or artifact (Gitea) that has plan.md; may be repeated.  [default: plan, or quorate-comment]",
)
@click.option("--dry-run", is_flag=True, help="Say what would be done, and write nothing.")
@output_option("text", "json")
@click.pass_context
def comment(
    ctx: click.Context,
    host: str,
    url: str,
    repository: str,
    token_file: Path | None,
    sources: tuple[str, ...],
    dry_run: bool,
    output: str,
) -> None:
    """Write the plan of every open pull request as a comment on it, or bring the comment up to date.

    It is for a schedule on the default branch, or a timer beside the control plane. It runs nothing of the pull requests. Keep its
    token out of their reach.
    """
    at = _api_url(ctx, url, _API[host])
    if not all(repository.split("/")) or (host == "gitea" and repository.count("/") != 1):
        raise click.UsageError(f"--repository: {repository!r} is no path of a repository, such as lab/policy", ctx)
    done: list[CommentUpkeep] = []
    try:
        with _connected(host, at, repository, _token(token_file)) as found:
            from reconciler.gitops.comments.upkeep import keep_comments

            for each in keep_comments(found, sources or (_SOURCE[host],), write=not dry_run):
                done.append(each)  # noqa: PERF402  (what was done before the host failed is told)
    except CommandFailedError:
        if done:
            _tell(done, output, dry_run=dry_run)
        raise
    _tell(done, output, dry_run=dry_run)
    if any(each.outcome == "failed" for each in done):
        ctx.exit(ExitCode.ERROR)


def _api_url(ctx: click.Context, url: str, path: str) -> str:
    """Where its API begins. CI says that of itself; users know the address of the host."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise click.UsageError(f"--url: {url!r} is no address of a host, such as https://git.example.com", ctx)
    if parts.username or parts.password:
        raise click.UsageError(f"--url: no account or token goes into it; set {_VARIABLE} instead", ctx)
    if parts.scheme == "http" and parts.hostname not in LOOPBACK:
        print_warning("the token goes over the network as it is", place=url, fix="Use https.")
    return url.rstrip("/").removesuffix(path) + path


def _token(named: Path | None) -> str:
    try:
        if named is None and (token := token_in_environment(_VARIABLE)):
            return token
        path = named or os.environ.get(_FILE_VARIABLE)
        if path:
            return read_foreign_token(Path(path))
    except TokenFileError as error:
        raise CommandFailedError(str(error), exit_code=ExitCode.NOT_AUTHORISED) from error
    raise CommandFailedError(
        "there is no token for the host",
        fix=f"Set {_VARIABLE}, or name a file with --token-file or {_FILE_VARIABLE}.",
        exit_code=ExitCode.NOT_AUTHORISED,
    )


@contextmanager
def _connected(host: str, url: str, repository: str, token: str) -> Iterator[PullRequestHost]:
    """The repository; what goes wrong with it comes out as CommandFailedError with the exit code for it."""
    from reconciler.gitops.comments.gitea import GiteaRepository
    from reconciler.gitops.comments.gitlab import GitLabProject
    from reconciler.gitops.comments.host_api import HostApi, HostError, HostRefusedError, HostUnreachableError
    from reconciler.gitops.comments.hosts import NoArtifactsError

    api = HostApi(url, token)
    try:
        yield (GitLabProject if host == "gitlab" else GiteaRepository)(api, repository)
    except HostUnreachableError as error:
        raise CommandFailedError(str(error), exit_code=ExitCode.SERVER_UNREACHABLE) from error
    except HostRefusedError as error:
        refused = error.status in (401, 403)
        fix = "Give a token that may read the repository and write comments." if refused else ""
        raise CommandFailedError(
            str(error), fix=fix, exit_code=ExitCode.NOT_AUTHORISED if refused else ExitCode.ERROR
        ) from error
    except (HostError, NoArtifactsError) as error:
        raise CommandFailedError(str(error), place=url) from error
    finally:
        api.close()


def _tell(done: list[CommentUpkeep], output: str, *, dry_run: bool) -> None:
    if output == "json":
        print_json(CommentUpkeepList(items=tuple(done)))
    elif not done:
        click.echo("no open pull request has its branch in this repository")
    else:
        if dry_run:
            click.echo("nothing is written; this is what would be done:")
        print_table(
            ("NUMBER", "COMMIT", "FROM", "COMMENT"),
            ((str(each.number), each.head[:12], each.source, _WORDS[each.outcome]) for each in done),
            right=("NUMBER",),
            spare=("FROM",),
        )
    for each in done:
        if each.detail:
            print_warning(f"{_WORDS[each.outcome]}: {each.detail}", place=f"pull request {each.number}")
