"""`quorate logs`: what one task wrote, from the beginning, from its last lines, or as it goes on."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

import click

from reconciler.api.group_payloads import GroupView
from reconciler.api.payloads import LOG_BYTES_MAX, JobView
from reconciler.cli.completion import job_names
from reconciler.cli.connection import api_client, server_option
from reconciler.cli.job_names import Named, find
from reconciler.cli.output import CommandFailedError
from reconciler.cli.status_line import status_line
from reconciler.cli.terminal_text import TerminalText
from reconciler.cli.wait import POLL_S, waiting_words
from reconciler.client import ApiError, Client
from reconciler.lifecycle.jobs.tail import start_of_last_lines
from reconciler.model.job_record import JobState
from reconciler.model.task_log import offset_after
from solver.plan.reason import count

_NOT_FOUND: Final = 404
_NOT_BEGUN: Final[frozenset[JobState]] = frozenset({"queued", "reserved"})
"""Of an array of thousands, most are: they are not asked one by one."""


@click.command(short_help="Print what a task wrote.")
@click.argument("job", shell_complete=job_names)
@click.argument("task", required=False)
@click.option("--group", default="", help="The task's group. Default: the job's first.")
@click.option("--index", type=click.IntRange(0), help="Which task of the group. Default: 0.")
@click.option("--attempt", type=click.IntRange(1), help="Which attempt of the job. Default: the newest.")
@click.option("-f", "--follow", is_flag=True, help="Wait for the task to start, and go on until the job has ended.")
@click.option("--tail", type=click.IntRange(0), metavar="N", help="Begin with the last N lines.")
@server_option
def logs(
    job: str,
    task: str | None,
    group: str,
    index: int | None,
    attempt: int | None,
    follow: bool,
    tail: int | None,
    server: str | None,
) -> None:
    """Print what one task of JOB wrote to stdout and stderr, byte for byte; on a terminal, text and colours alone.

    TASK is a group, or one of its tasks as `quorate describe` lists them: worker/2. It says the same as --group and --index.

    Of an array or pipeline, that of each of its jobs that has begun, one after the other under its name.
    """
    if task is not None:
        if group or index is not None:
            raise click.UsageError("TASK names the task: leave out --group and --index")
        group, index = _named(task)
    with api_client(server) as client:
        found = find(client, job)
        if isinstance(found, GroupView) and follow:
            fix = f"Name one of them, such as {found.jobs[0].name}."
            raise CommandFailedError(f"{job} has {count(len(found.jobs), 'job')}: -f follows one", fix=fix)
        for title, log in _logs_of(client, found, (group, index or 0, attempt or 0)):
            _write(chain((title,), log.pieces(follow, tail)))


def _named(task: str) -> tuple[str, int]:
    """The group and the index that `worker/2` names; of `worker` its first task."""
    group, slash, index = task.partition("/")
    if not group or (slash and not index.isdecimal()):
        raise click.UsageError(f"{task} names no task: write it as worker/2, or give --group and --index")
    return group, int(index or 0)


def _write(pieces: Iterable[bytes]) -> None:
    """A program gets every byte; a person's terminal is not steered by what a task wrote."""
    if not sys.stdout.isatty():
        for piece in pieces:
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
        return
    text = TerminalText()
    for piece in pieces:
        click.echo(text.of(piece), nl=False, color=True)
    click.echo(text.end(), nl=False, color=True)


def _logs_of(client: Client, found: Named, task: tuple[str, int, int]) -> Iterator[tuple[bytes, TaskLog]]:
    """That of the job; or of each that has begun, with a title as `tail` writes it of several files."""
    if isinstance(found, JobView):
        yield b"", TaskLog(client, found.name, *task)
        return
    shown = 0
    for job in found.jobs:
        log = TaskLog(client, job.name, *task)
        if job.state not in _NOT_BEGUN and log.is_there():
            yield f"{chr(10) * bool(shown)}==> {job.name} <==\n".encode(), log
            shown += 1
    if not shown:
        raise CommandFailedError(f"no job of {found.name} has written a log yet", fix=f"`quorate why {found.name}`")


class TaskLog:
    """One task's log on a server. `attempt` 0 is the newest when it is first read."""

    def __init__(self, client: Client, job: str, group: str, index: int, attempt: int) -> None:
        self._client = client
        self._job = job
        self._group = group
        self._index = index
        self._attempt = attempt
        self._is_fixed = bool(attempt)

    def is_there(self) -> bool:
        """It can be read."""
        try:
            self._settle_attempt(follow=False)
        except ApiError as error:
            if error.status != _NOT_FOUND:
                raise
            return False
        return True

    def pieces(self, follow: bool, tail: int | None) -> Iterator[bytes]:
        """The log piece by piece. To follow is to go on with later attempts, unless one was asked for, until the job has ended.

        Raises ApiError where there is no such log.
        """
        yield from self._of_attempt(follow, tail)
        while follow and not self._is_fixed and (newest := self._client.job(self._job).attempt) > self._attempt:
            self._attempt = newest
            click.echo(f"attempt {newest}:", err=True)
            yield from self._of_attempt(follow, None)

    def _of_attempt(self, follow: bool, tail: int | None) -> Iterator[bytes]:
        self._settle_attempt(follow)
        offset = 0 if tail is None else start_of_last_lines(self._read, tail)
        while True:
            # Asked before the last read: whatever was written until then is read by it.
            over = not follow or self._is_over()
            while piece := self._read(offset, LOG_BYTES_MAX):
                offset = offset_after(offset, piece)
                yield piece
            if over:
                return
            time.sleep(POLL_S)

    def _settle_attempt(self, follow: bool) -> None:
        """Fix the attempt, so that all pieces are of one; when following, wait until there is something to read."""
        with status_line() as tell:
            while True:
                view = self._client.job(self._job)
                self._attempt = self._attempt or view.attempt
                try:
                    self._read(0, 1)
                except ApiError as error:
                    if error.status != _NOT_FOUND or not follow or not self._may_come(view):
                        raise
                    tell(waiting_words(self._client, view))
                    time.sleep(POLL_S)
                else:
                    return

    def _may_come(self, view: JobView) -> bool:
        """The log may be there in a moment: the attempt has not begun, or begins just now."""
        known = any(
            (task.group, task.index) == (self._group or view.spec.task_groups[0].name, self._index)
            for task in view.tasks
        )
        return view.outcome is None and (not view.tasks or known) and view.attempt <= self._attempt

    def _is_over(self) -> bool:
        view = self._client.job(self._job)
        return view.outcome is not None or view.attempt > self._attempt

    def _read(self, offset: int, limit: int) -> bytes:
        return self._client.log(self._job, self._group, self._index, self._attempt, offset, limit)
