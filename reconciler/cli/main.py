"""The command `quorate`: finds the subcommand, and turns whatever goes wrong into a message and an exit code."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple

import click
from click.exceptions import NoArgsIsHelpError

from reconciler.cli.exits import ExitCode
from reconciler.cli.output import CommandFailedError, print_error
from reconciler.control.garbage_collection import seldom


class Subcommand(NamedTuple):
    """Where a command lives (`module:function`), and what `quorate --help` says of it without importing it."""

    target: str
    summary: str


SECTIONS: Final = {
    "Jobs": {
        "submit": Subcommand("reconciler.cli.submit:submit", "Submit a job."),
        "get": Subcommand("reconciler.cli.get:get", "List jobs."),
        "describe": Subcommand("reconciler.cli.describe:describe", "Show everything about a job."),
        "why": Subcommand("reconciler.cli.why:why", "Say why a job waits, or how it ended."),
        "logs": Subcommand("reconciler.cli.logs:logs", "Print what a task wrote."),
        "attach": Subcommand("reconciler.cli.attach:attach", "Attach to the terminal of a job."),
        "wait": Subcommand("reconciler.cli.wait:wait", "Wait until jobs run or have ended."),
        "cancel": Subcommand("reconciler.cli.verbs:cancel", "Ask jobs to end."),
        "suspend": Subcommand("reconciler.cli.verbs:suspend", "Take back what jobs hold, until they are resumed."),
        "resume": Subcommand("reconciler.cli.verbs:resume", "Put suspended jobs back into their queue."),
        "requeue": Subcommand("reconciler.cli.verbs:requeue", "Stop running jobs; they wait and start again."),
        "top": Subcommand("reconciler.cli.top:top", "Show what runs, how far it is and what it uses."),
        "checkpoints": Subcommand("reconciler.cli.checkpoints:checkpoints", "List what a job has saved."),
    },
    "The cluster": {
        "queues": Subcommand("reconciler.cli.queues:queues", "Show the quota tree and its use."),
        "nodes": Subcommand("reconciler.cli.nodes:nodes", "Show the nodes and the jobs on them."),
        "gpus": Subcommand("reconciler.cli.gpus:gpus", "Show what the GPUs do, and which jobs hold them."),
        "inventory": Subcommand("reconciler.cli.inventory:inventory", "Show the GPUs of this machine."),
        "showback": Subcommand(
            "reconciler.cli.showback:showback", "Show what became of all GPU time, and what it costs."
        ),
        "audit": Subcommand("reconciler.cli.audit:audit", "Say which user did what, and verify the record."),
        "rounds": Subcommand("reconciler.cli.rounds:rounds", "List rounds, or show one."),
        "history": Subcommand("reconciler.cli.history:history", "List past jobs, or export them to be replayed."),
        "replay": Subcommand("reconciler.cli.replay:replay", "Decide a recorded round again and compare."),
    },
    "Interventions": {
        "hold": Subcommand("reconciler.cli.interventions:hold", "Keep jobs, or a whole queue, from starting."),
        "boost": Subcommand("reconciler.cli.interventions:boost", "Start jobs before the others of their queue."),
        "cordon": Subcommand("reconciler.cli.interventions:cordon", "Keep new jobs off nodes for a while."),
        "uncordon": Subcommand("reconciler.cli.interventions:uncordon", "End the cordon of nodes."),
    },
    "Policy in Git": {
        "init": Subcommand("reconciler.cli.init:init", "Start a new policy repository."),
        "import": Subcommand(
            "reconciler.cli.policy_import:import_policy", "Write policy from another scheduler's configuration."
        ),
        "validate": Subcommand(
            "reconciler.cli.validate:validate", "Check a policy repository, and say where it is wrong."
        ),
        "test": Subcommand("reconciler.cli.policy_tests:test", "Run the policy's own tests."),
        "plan": Subcommand("reconciler.cli.plan:plan", "Show what a change of policy would do."),
        "comment": Subcommand(
            "reconciler.cli.comment:comment", "Keep the plan up to date as a comment on pull requests."
        ),
        "apply": Subcommand(
            "reconciler.cli.reconciliation:apply", "Approve a policy revision that is held, or a saved plan."
        ),
        "codeowners": Subcommand(
            "reconciler.cli.codeowners:codeowners", "Write the CODEOWNERS file: the reviewers of each file."
        ),
        "calendar": Subcommand("reconciler.cli.calendar:calendar", "Show the windows of Reservations."),
        "explain": Subcommand("reconciler.cli.explain:explain", "Say what a field of a document means."),
    },
    "Trying decisions out": {
        "snapshot": Subcommand("reconciler.cli.snapshot:snapshot", "Export the cluster and its jobs as a file."),
        "solve": Subcommand("reconciler.cli.solve:solve", "Decide one round from files."),
        "capacity": Subcommand(
            "reconciler.cli.capacity:capacity", "Show what is short, and what more nodes would change."
        ),
        "simulate": Subcommand(
            "reconciler.cli.simulate:simulate", "Replay jobs of the past under one or more policies."
        ),
    },
    "The control plane": {
        "run": Subcommand("reconciler.cli.run:run", "Run the control plane."),
        "doctor": Subcommand("reconciler.cli.doctor:doctor", "Say what this machine lacks, and for what."),
        "status": Subcommand("reconciler.cli.status:status", "Say how the control plane stands."),
        "reconcile": Subcommand("reconciler.cli.reconciliation:reconcile", "Make the server look at Git now."),
        "suspend-reconcile": Subcommand(
            "reconciler.cli.reconciliation:suspend_reconcile", "Stop following Git for a while."
        ),
        "resume-reconcile": Subcommand("reconciler.cli.reconciliation:resume_reconcile", "Follow Git again."),
        "store": Subcommand("reconciler.cli.store:store", "Back up, restore, check or take back the store."),
        "token": Subcommand("reconciler.cli.token:token", "Give a user a token for the API."),
        "agent": Subcommand("reconciler.cli.agent:agent", "Run the tasks of one node."),
        "agents": Subcommand("reconciler.cli.agents:agents", "Say which machines may speak for nodes."),
        "alerts": Subcommand("reconciler.cli.alerts:alerts", "List the webhooks that are told what happens."),
    },
    "This command line": {
        "completion": Subcommand(
            "reconciler.cli.completion:completion", "Print what lets a shell complete commands and names."
        ),
    },
}
"""Subcommands as `quorate --help` shows them, by what they are for. Commands import what they need when they run."""

COMMANDS: Final = {name: command for section in SECTIONS.values() for name, command in section.items()}
"""Every subcommand, in the same order."""


class LazyGroup(click.Group):
    """Imports a subcommand when it is called, so that `quorate --help` stays fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  (click's signature)
        """The names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:  # noqa: ARG002  (click's signature)
        """The command of that name, imported."""
        if name not in COMMANDS:
            return None
        module, _, function = COMMANDS[name].target.partition(":")
        command: click.Command = getattr(import_module(module), function)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does it, with what is meant where there is no such command, or where it takes no argument."""
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            from reconciler.cli.other_words import command_meant

            meant = command_meant(args[0], list(COMMANDS))
            ctx.fail(f"there is no command {args[0]!r}." + (f" Did you mean {meant}?" if meant else ""))
        if len(args) > 1 and not args[1].startswith("-"):
            from reconciler.cli.other_words import argument_meant

            hint = argument_meant(args[0], args[1:])
            if hint:
                raise click.UsageError(f"{args[0]} takes no argument {args[1]!r}. {hint}", _context_of(ctx, args[0]))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002  (click's signature)
        """The tables, from the summaries; names in one column."""
        width = max(map(len, COMMANDS))
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:<{width}}", command.summary) for name, command in commands.items()])


def _context_of(ctx: click.Context, name: str) -> click.Context:
    """That of one command, whose help an error then names."""
    return click.Context(click.Command(name), parent=ctx, info_name=name)


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
@click.version_option(package_name="quorate", message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """A GPU-cluster scheduler whose whole policy lives in Git."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def run(arguments: Sequence[str]) -> int:
    """Run one command line of `quorate`; returns its exit code."""
    return run_as("quorate", cli, arguments)


def run_as(program: str, command: click.Command, arguments: Sequence[str]) -> int:
    """Run a command line of a program. Commands end with other exit codes than 0 by `ctx.exit` or by an error."""
    _open_streams()
    try:
        result: Any = command.main(list(arguments), prog_name=program, standalone_mode=False)
    except CommandFailedError as failure:
        print_error(failure.problem, failure.place, failure.fix)
        return failure.exit_code
    except (
        NoArgsIsHelpError
    ) as asked:  # A group without its command: what click raises is the help, not an error's text.
        click.echo(asked.format_message(), err=True)
        return ExitCode.USAGE
    except click.UsageError as error:
        from reconciler.cli.other_words import in_words

        path = error.ctx.command_path if error.ctx else program
        print_error(in_words(error), fix=f"See `{path} --help`.")
        return ExitCode.USAGE
    except click.ClickException as error:
        print_error(error.format_message())
        return ExitCode.ERROR
    except click.Abort:  # What click makes of Ctrl-C.
        print_error("interrupted")
        return ExitCode.INTERRUPTED
    except OSError as error:
        if error.filename is not None:  # A file or folder that this command can't use, whichever it is.
            print_error(error.strerror or str(error), place=str(error.filename))
            return ExitCode.ERROR
        if error.errno not in (errno.EPIPE, errno.ENOSPC):
            raise
        # The reader of the output has gone, as `head` does, or its disk is full. Python would complain again when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno == errno.ENOSPC:
            print_error(os.strerror(errno.ENOSPC))
        return ExitCode.ERROR
    return result if isinstance(result, int) else ExitCode.OK


def _open_streams() -> None:
    """What was closed at the start (`<&-`) is None to Python: to every command it is an empty file, or one that takes all."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  (open until the process ends)


def main() -> None:
    """The console script."""
    seldom()  # an eighth of the start of a control plane was looking for garbage among modules
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
