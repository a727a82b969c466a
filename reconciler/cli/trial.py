"""`quorate submit --test-only`: what would become of a submission, in words."""

from __future__ import annotations

from collections.abc import Iterator

import click

from reconciler.api.group_payloads import Trial, TrialList
from reconciler.cli.exits import ExitCode
from reconciler.cli.jobfile import Submission, document_for
from reconciler.cli.output import print_json
from reconciler.cli.phrases import short_list
from reconciler.client import Client
from solver.plan.reason import count


def try_out(client: Client, submission: Submission, output: str) -> ExitCode:
    """Print what would happen; returns ERROR where something of it could never run."""
    trials = client.test(document_for(submission))
    if output == "json":
        print_json(trials)
    else:
        for line in _lines(trials):
            click.echo(line)
    return ExitCode.OK if all(trial.admissible for trial in trials.items) else ExitCode.ERROR


def _lines(trials: TrialList) -> Iterator[str]:
    for trial in trials.items:
        yield f"{trial.name}: {_fate(trial)}"
        yield from (f"  {word}" for word in trial.words)
        if trial.tasks:
            yield f"  on {short_list(dict.fromkeys(task.node for task in trial.tasks))}"
        if trial.evicts:
            yield f"  {short_list(trial.evicts)} would be asked to leave for it"
    if trials.untried:
        yield f"and {count(trials.untried, 'job')} more of the same submission, which were not tried"


def _fate(trial: Trial) -> str:
    if not trial.admissible:
        return "could never run"
    if trial.waits_for:
        return f"would wait for {', '.join(trial.waits_for)}"
    return "would start now" if trial.tasks else "would wait"
