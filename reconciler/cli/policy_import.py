"""`quorate import`: another scheduler's configuration becomes policy documents, with a report of what became of each field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from reconciler.cli.exits import ExitCode
from reconciler.cli.inputs import invalid, read_snapshot_file, unreadable
from reconciler.cli.optimiser import program_beside
from reconciler.cli.output import CommandFailedError, output_option, print_json, printable
from reconciler.documents.files import Files, read_folder
from reconciler.documents.repository import Compiled, read_clusters
from reconciler.model.clock import SystemClock
from reconciler.model.problem import InvalidDocumentsError
from solver.model.snapshot import Snapshot
from solver.plan.reason import count

if TYPE_CHECKING:
    from reconciler.importers.conversion import Imported
    from reconciler.importers.report import ImportReport

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_SYSTEMS = ("kueue", "kai", "volcano", "yunikorn", "slurm")


@click.command("import", short_help="Write policy from another scheduler's configuration.")
@click.argument("system", type=click.Choice(_SYSTEMS))
@click.argument("paths", metavar="FILE...", nargs=-1, required=True, type=_FILE)
@click.option(
    "--to",
    "folder",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="The policy repository to write to. No file that is there is replaced.",
)
@click.option(
    "--nodes",
    type=_FILE,
    help="The nodes: what `kubectl get nodes -o json` or `scontrol show nodes --json` prints.",
)
@click.option(
    "--gpu-type",
    "gpu_types",
    multiple=True,
    metavar="[NAME=]TYPE",
    help="The GPU type that a flavor, or a type of Slurm, is called here; without NAME, that of all GPUs. Repeatable.",
)
@click.option(
    "--check",
    "snapshot",
    type=_FILE,
    metavar="SNAPSHOT",
    help="Decide a first round with what runs and waits, and say what it would do: a snapshot, or of Slurm `squeue --json`.",
)
@click.option(
    "--all", "unfold", is_flag=True, help="Each field on a line of its own, those that are the same here too."
)
@output_option("text", "json")
def import_policy(
    system: str,
    paths: tuple[Path, ...],
    folder: Path,
    nodes: Path | None,
    gpu_types: tuple[str, ...],
    snapshot: Path | None,
    unfold: bool,
    output: str,
) -> None:
    """Write policy documents to DIR from the configuration of another scheduler, and report what became of each of its fields.

    Each document says in a comment where it comes from. The result is valid, or nothing is written.
    """
    imported = _imported(system, paths, nodes, gpu_types)
    compiled = _written(imported.files, folder)
    report = imported.report
    if snapshot:
        from reconciler.importers.first_round import first_round

        world = _queued(imported, snapshot, compiled) if system == "slurm" else read_snapshot_file(snapshot)
        with program_beside() as optimiser:
            found = first_round(world, compiled, imported.queues, optimiser)
        report = msgspec.structs.replace(report, first_round=found)
    if output == "json":
        print_json(report)
    else:
        _print(imported, folder, report, unfold=unfold)


def _imported(system: str, paths: Sequence[Path], nodes: Path | None, gpu_types: Sequence[str]) -> Imported:
    from reconciler.importers.conversion import convert
    from reconciler.importers.inventory import nodes_of
    from reconciler.importers.source import SourceFile
    from reconciler.importers.system import ImportSource

    named = {name: kind for name, _, kind in (each.rpartition("=") for each in gpu_types)}
    try:
        files = [SourceFile(str(path), path.read_bytes()) for path in paths]
        known = nodes_of(SourceFile(str(nodes), nodes.read_bytes())) if nodes else ()
        only = named.pop("", "")
        return convert(system, ImportSource(files, known, str(nodes or ""), named, only))
    except InvalidDocumentsError as error:
        raise invalid(error, ExitCode.ERROR) from error
    except OSError as error:
        raise unreadable(error, paths[0]) from error


def _written(files: Mapping[str, str], folder: Path) -> Compiled:
    """Write the documents, if they are valid together with what is there, and return the policy. Nothing is replaced."""
    try:
        there = read_folder(folder) if folder.exists() else Files({})
        taken = [path for path in files if (folder / path).exists()]
        if taken:
            more = f" and {len(taken) - 1} more" if len(taken) > 1 else ""
            fix = "Name a new folder with --to, or delete them first."
            raise CommandFailedError(f"the file is there already{more}", place=str(folder / taken[0]), fix=fix)
        together = Files({**there.contents, **{path: text.encode() for path, text in files.items()}}, there.refused)
        (reading, *_) = read_clusters(together).values()
        compiled = reading.checked()
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
    except InvalidDocumentsError as error:
        raise invalid(error, ExitCode.POLICY_INVALID, where="what was to be written") from error
    except OSError as error:
        raise unreadable(error, folder) from error
    return compiled


def _queued(imported: Imported, path: Path, compiled: Compiled) -> Snapshot:
    """A snapshot of Quorate, or what `squeue --json` prints. Jobs that can't be taken are told on stderr."""
    from reconciler.importers.slurm.jobs import SlurmQueue, is_queue
    from reconciler.importers.source import SourceFile

    raw = path.read_bytes()
    if not is_queue(raw):
        return read_snapshot_file(path)
    queue = SlurmQueue({node.name: node for node in compiled.nodes}, imported.keys)
    try:
        found = queue.snapshot(SourceFile(str(path), raw), SystemClock().now())
    except InvalidDocumentsError as error:
        raise invalid(error, ExitCode.ERROR) from error
    for left in queue.left_out:
        click.echo(f"note: left out: {printable(left)}", err=True)
    return found


def _print(imported: Imported, folder: Path, report: ImportReport, *, unfold: bool) -> None:
    from reconciler.importers.report import report_lines

    for line in report_lines(report, unfold=unfold):
        click.echo(printable(line))
    click.echo(
        printable(
            f"wrote {count(len(imported.files), 'file')} to {folder}; {'they are' if len(imported.files) > 1 else 'it is'} valid. "
            f"Next: quorate validate {folder}"
        )
    )
