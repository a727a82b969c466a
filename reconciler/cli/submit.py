"""`quorate submit`: hands jobs to the control plane, or says why they could never run and what would."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby
from typing import Any

import click

from reconciler.api.group_payloads import Trial, TrialList
from reconciler.api.payloads import JobView
from reconciler.cli.attach import wait_and_attach
from reconciler.cli.completion import gpu_types, mig_profiles, queue_names
from reconciler.cli.connection import api_client, server_option
from reconciler.cli.exits import ExitCode
from reconciler.cli.generated_names import made_up_name
from reconciler.cli.job_names import Named, counts_of, exit_code_of
from reconciler.cli.jobfile import ShortForm, Submission, document_for, submission_in_file
from reconciler.cli.output import CommandFailedError, output_option, print_json
from reconciler.cli.params import LocalInstantParam
from reconciler.cli.phrases import short_list, size_of
from reconciler.cli.terminal import require_terminal
from reconciler.cli.wait import wait_for
from reconciler.client import ApiError, Client
from reconciler.documents.job import NamedJob
from reconciler.documents.slurm.names import KnownNames
from solver.model.workload import JobName
from solver.plan.reason import count

_REFUSED_STATUS = 422
_TAKEN = "job-exists"

_SEPARATOR = "\0--"

_DOCUMENT_ENDINGS = (".yaml", ".yml", ".json")


class _SubmitCommand(click.Command):
    """Keeps the place of `--`: what stands before it is a script with arguments, what begins with it a command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does it, with a mark where the separator was."""
        if "--" in args:
            place = args.index("--")
            args = [*args[: place + 1], _SEPARATOR, *args[place + 1 :]]
        return super().parse_args(ctx, args)


@click.command(cls=_SubmitCommand, short_help="Submit a job.")
@click.option("-f", "--file", "path", metavar="FILE", help="A Job or Pipeline document, YAML or JSON; - reads stdin.")
@click.option(
    "--name", help="The job's name; replaces that of the file or script. Default: one that says what it runs."
)
@click.option(
    "--queue", shell_complete=queue_names, help="The queue it is charged to; replaces that of the file or script."
)
@click.option("--gpus", type=click.IntRange(0), help="Whole GPUs of one task. Default: none.")
@click.option(
    "--gpu-fraction", type=float, help="Instead of --gpus: a part of one GPU beside other tasks, such as 0.5."
)
@click.option("--gpu-memory", help="Instead of --gpus: so much memory of one GPU beside other tasks, such as 20Gi.")
@click.option(
    "--mig",
    metavar="PROFILE",
    shell_complete=mig_profiles,
    help="Instead of --gpus: a MIG instance of this profile, such as 1g.10gb.",
)
@click.option(
    "--devices",
    type=click.IntRange(1),
    help="Such a part of so many GPUs, or so many such instances, for each task. Default: 1.",
)
@click.option("--tasks", type=click.IntRange(1), help="Tasks, which start together or not at all. Default: 1.")
@click.option(
    "--type",
    "types",
    multiple=True,
    shell_complete=gpu_types,
    help="A GPU type that will do; repeatable, the most wanted first.",
)
@click.option(
    "--min-gpu-memory", help="Only GPUs with at least so much memory each, such as 64Gi, whatever their type."
)
@click.option("--class", "priority_class", help="Its priority class. Default: the policy's.")
@click.option("--cpu", help="CPU cores of one task, such as 8 or 500m.")
@click.option("--memory", help="Memory of one task, such as 64Gi.")
@click.option(
    "--node-label",
    "node_labels",
    multiple=True,
    metavar="KEY=VALUE",
    help="Only nodes that have this label will do; repeatable, all of them hold.",
)
@click.option("--time-limit", help="How long it may run, such as 12h. Default: as long as its class says.")
@click.option(
    "--finish-by",
    type=LocalInstantParam(),
    help="When it is to have ended: 2026-12-01T08:00, or 6h from now. Of equals in a queue those that have to start first do.",
)
@click.option("--topology", multiple=True, metavar="WISH=LEVEL", help="Like required=rack or preferred=island.")
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="An environment variable of every task; repeatable.")
@click.option(
    "--secret",
    multiple=True,
    metavar="VARIABLE=SECRET[/KEY]",
    help="A variable of every task that has the value of a secret of the queue; repeatable.",
)
@click.option("--image", help="The image in which every task runs, in a container; NAME@sha256:... is best.")
@click.option(
    "--chdir",
    metavar="DIR",
    help="The folder in which every task begins; none: an empty one of its own. Default: this folder; with --image none.",
)
@click.option("--array", metavar="INDICES[%N]", help="Submit it once for each index, like 0-99; %10 runs 10 at a time.")
@click.option(
    "--depends-on",
    multiple=True,
    metavar="CONDITION:JOB",
    help="Start only after JOB, an array or a pipeline: afterok, afterany or afternotok; repeatable.",
)
@click.option("--pty", is_flag=True, default=None, help="Attach this terminal to it once it runs; an interactive job.")
@click.option("--key", default="", help="Submitting the same name with the same key again is harmless.")
@click.option("--test-only", is_flag=True, help="Say what would happen, and when, and submit nothing.")
@click.option("--strict", is_flag=True, help="Refuse a script with #SBATCH flags that would be ignored.")
@click.option("--wait", "and_wait", is_flag=True, help="Wait until it has ended, and exit with its exit code.")
@click.argument("words", nargs=-1, metavar="[SCRIPT [-- ARGS...] | -- COMMAND ARGS...]")
@output_option("text", "json")
@server_option
@click.pass_context
def submit(
    ctx: click.Context,
    /,
    path: str | None,
    name: str | None,
    queue: str | None,
    key: str,
    strict: bool,
    test_only: bool,
    and_wait: bool,
    words: tuple[str, ...],
    output: str,
    server: str | None,
    **short_form: Any,
) -> None:
    """Submit the job or pipeline in FILE, a SCRIPT with #SBATCH lines, or a job of equal tasks described by options.

    The last needs --queue and -- COMMAND at least; without --name it is given one, such as train-7k2f. A job that could never run
    under the policy in force is refused, with the reasons and what would fit. A name may be used again once all that has it has
    ended: then train means the newest, and train#1 the first. Until then it is an error, unless both times carry the same --key.
    """
    known = None if queue else partial(_names_of_policy, server)
    submission = _asked(path, name, queue, words, strict, short_form, known)
    if key and not (name or path or _is_batch(words)):
        raise click.UsageError("--key is for a name that may be submitted twice: give it a --name")
    attaches = bool(short_form["pty"]) and not test_only
    if attaches:
        _require_attachable(output, and_wait, short_form["array"])
    with api_client(server) as client:
        if test_only:
            ctx.exit(_try_out(client, submission, output))
        is_named = bool(name or path or _is_batch(words))
        view: Named = _submit(client, submission, key, output, is_named)
        if attaches:
            ctx.exit(wait_and_attach(client, view))
        if and_wait:
            view = wait_for(client, view, "ended")
    if output == "json":
        print_json(view)
    else:
        click.echo(f"{view.name}: {_state_of(view)}" if and_wait else f"submitted {_words_of(view)}")
    ctx.exit(exit_code_of(view) if and_wait else ExitCode.OK)


def _require_attachable(output: str, and_wait: bool, array: str | None) -> None:
    """Before anything is submitted. Raises UsageError, CommandFailedError."""
    if output == "json" or and_wait or array is not None:
        raise click.UsageError("--pty shows one job's own terminal: leave out -o json, --wait and --array")
    require_terminal()


def _asked(
    path: str | None,
    name: str | None,
    queue: str | None,
    words: tuple[str, ...],
    strict: bool,
    options: dict[str, Any],
    known: Callable[[], KnownNames] | None,
) -> Submission:
    """What is to be submitted, from whichever of the three ways it is described."""
    from reconciler.cli.scripts import document_of, why_no_script

    before, is_batch = _before_separator(words), _is_batch(words)
    rest = tuple(word for word in words if word != _SEPARATOR)
    short = ShortForm(**options, command=() if is_batch else rest)
    if strict and not is_batch:
        raise click.UsageError("--strict is for a SCRIPT with #SBATCH lines")
    if path is not None:
        if is_batch or not short.is_empty:
            raise click.UsageError("-f describes the whole job: beside it only --name and --queue say more of it")
        return submission_in_file(path, name, queue)
    if is_batch:
        return short.over(document_of(rest[0], rest[1:], strict, known), rest[0], name, queue)
    if before:
        _require_command(before[0], why_no_script(before[0]), is_script_wanted=_SEPARATOR in words)
    return short.job(name, queue)


def _names_of_policy(server: str | None) -> KnownNames:
    """Of the policy in force, which says what a script's account, partition and QOS are here."""
    with api_client(server) as client:
        return KnownNames.of(client.policy().policy)


def _before_separator(words: tuple[str, ...]) -> tuple[str, ...]:
    return words[: words.index(_SEPARATOR)] if _SEPARATOR in words else words


def _is_batch(words: tuple[str, ...]) -> bool:
    """Whether a script with #SBATCH lines is to be submitted."""
    from reconciler.cli.scripts import is_script

    before = _before_separator(words)
    return bool(before) and is_script(before[0])


def _require_command(word: str, no_script: str, *, is_script_wanted: bool) -> None:
    """Raises CommandFailedError where the first word is clearly no command, but a file that was to be submitted."""
    if no_script:
        fix = "Write lines like `#SBATCH --gpus=1` below a first line like `#!/bin/bash`, or -- before a command of tasks."
        raise CommandFailedError(no_script, place=word, fix=fix, exit_code=ExitCode.USAGE)
    if word.endswith(_DOCUMENT_ENDINGS):
        is_there = os.path.isfile(word)
        fix = f"Submit it with `quorate submit -f {word}`." if is_there else "A document is submitted with -f FILE."
        problem = "this is a document, and no command" if is_there else "there is no such file, and no such command"
        raise CommandFailedError(problem, place=word, fix=fix, exit_code=ExitCode.USAGE)
    if is_script_wanted:
        fix = "A script begins with #! and has #SBATCH lines; write -- before a command."
        raise CommandFailedError("this is no script with #SBATCH lines", place=word, fix=fix, exit_code=ExitCode.USAGE)


def _submit(client: Client, submission: Submission, key: str, output: str, is_named: bool) -> Named:
    """`is_named`: else its name is one of many that would do, and another is tried where it is taken."""
    try:
        if isinstance(submission, NamedJob) and submission.spec.array is None:
            return client.submit(submission.name, submission.spec, key)
        return client.submit_group(document_for(submission), key)
    except ApiError as error:
        if error.problem.code == _TAKEN and not is_named and isinstance(submission, NamedJob):
            another = NamedJob(JobName(made_up_name(submission.spec.command)), submission.spec)
            return _submit(client, another, key, output, is_named)
        if error.status == _REFUSED_STATUS and output == "json":
            # The reasons as data, for programs; the same in words is on stderr.
            print_json(error.problem)
        raise


def _state_of(view: Named) -> str:
    if not isinstance(view, JobView):
        return counts_of(view)
    code = view.outcome.exit_code if view.outcome is not None else None
    return f"{view.state} with exit code {code}" if code else view.state


def _words_of(view: Named) -> str:
    if isinstance(view, JobView):
        return f"{view.name} to {view.spec.queue}: {size_of(view.spec)}"
    return f"{view.kind} {view.name}: {count(len(view.jobs), 'job')}"


def _try_out(client: Client, submission: Submission, output: str) -> ExitCode:
    """Print what would happen; returns ERROR where something of it could never run, or would be refused now."""
    trials = client.test(document_for(submission))
    if output == "json":
        print_json(trials)
    else:
        for line in _trial_lines(trials):
            click.echo(line)
    return ExitCode.OK if all(trial.is_taken for trial in trials.items) else ExitCode.ERROR


def _trial_lines(trials: TrialList) -> Iterator[str]:
    for lines, alike in groupby(trials.items, lambda trial: tuple(_fate_lines(trial))):
        first, *others = alike
        yield f"{first.name}: {lines[0]}"
        yield from (f"  {line}" for line in lines[1:])
        if others:
            # Those of an array mostly come to the same.
            yield f"  the same of {short_list([trial.name for trial in others])}"
    if trials.untried:
        yield f"and {count(trials.untried, 'job')} more of the same submission, which were not tried"


def _fate_lines(trial: Trial) -> Iterator[str]:
    yield _trial_fate(trial)
    yield from trial.words
    if trial.tasks:
        yield f"on {short_list(dict.fromkeys(task.node for task in trial.tasks))}"
    if trial.evicts:
        yield f"{short_list(trial.evicts)} would be asked to leave for it"


def _trial_fate(trial: Trial) -> str:
    if not trial.admissible:
        return "could never run"
    if trial.waits_for:
        return f"would wait for {', '.join(trial.waits_for)}"
    return "would start now" if trial.tasks else "would wait"
