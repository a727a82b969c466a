"""`quorate solve`: one pure round from files. The seam that outside programs build on."""

from __future__ import annotations

from pathlib import Path

import click

from reconciler.analysis.reports.plain_text import plain_of
from reconciler.analysis.reports.proof import proof_of
from reconciler.cli.inputs import read_policies, read_snapshot_file
from reconciler.cli.optimiser import program_beside
from reconciler.cli.output import output_option, print_json, printable
from reconciler.cli.params import cluster_option
from reconciler.cli.status_line import busy
from solver.plan.plan import Plan


@click.command(short_help="Decide one round from files.")
@click.option(
    "--snapshot",
    "snapshot_file",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The cluster, its jobs and what is in flight, as JSON.",
)
@click.option(
    "--policies",
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A policy repository, or its folder of policies.",
)
@cluster_option
@output_option("text", "json")
def solve(snapshot_file: Path, policies: Path, cluster: str | None, output: str) -> None:
    """Decide one round: which jobs start on which devices, which wait, and why. Reads files, touches nothing.

    The JSON output has a schema: schemas/plan.json. `quorate explain snapshot` describes the input.
    """
    from solver.round.solve import solve as solve_round

    with program_beside() as optimiser, busy("solving the round"):
        plan = solve_round(read_snapshot_file(snapshot_file), read_policies(policies, cluster).policy, optimiser)
    if output == "json":
        print_json(plan)
    else:
        click.echo("\n".join(plan_lines(plan)))


def plan_lines(plan: Plan) -> list[str]:
    """The plan for people: what starts and where, what waits and why, and what is proven of it."""
    from reconciler.analysis.reports.step_words import step_line
    from solver.plan.plan import Inadmissible, Waits
    from solver.round.advice import help_for

    lines = [step_line(step) for step in plan.steps]
    for verdict in plan.verdicts:
        if isinstance(verdict, Waits | Inadmissible):
            word = "wait " if isinstance(verdict, Waits) else "never"
            lines.append(f"{word}    {verdict.job}: {'; '.join(map(str, verdict.reasons))}")
            lines += [f"help     {verdict.job}: {'; '.join(helps)}"] if (helps := help_for(verdict)) else []
    return [printable(line) for line in [*(lines or ["nothing to do"]), *certificate_lines(plan)]]


def certificate_lines(plan: Plan) -> list[str]:
    """Which part of the solve decided, and what is not proven; nothing where there was nothing to decide."""
    return [plain_of(proof_of(plan.certificate))] if plan.certificate.stage != "none" else []
