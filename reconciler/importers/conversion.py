"""One import, from files to documents and a report: the systems that are known, and what is the same for all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from reconciler.importers.kai import kai
from reconciler.importers.kueue import kueue
from reconciler.importers.report import Adjustment, ImportReport
from reconciler.importers.settlement import settle
from reconciler.importers.slurm.jobs import QueueNaming
from reconciler.importers.slurm.policy import slurm
from reconciler.importers.system import Drawing, ImportSource
from reconciler.importers.text import files_of
from reconciler.importers.volcano import volcano
from reconciler.importers.yunikorn import yunikorn

SYSTEMS: Final[Mapping[str, Callable[[ImportSource], Drawing]]] = {
    "kueue": kueue,
    "kai": kai,
    "volcano": volcano,
    "yunikorn": yunikorn,
    "slurm": slurm,
}
"""What draws the policy of each system."""


class Imported(NamedTuple):
    """The documents by path, and the report. `queues`: the name of each queue by what the source calls it.

    `keys`: the names of queues and classes by where they are in the source's tree: `account/physics`.
    """

    files: Mapping[str, str]
    report: ImportReport
    queues: Mapping[str, str]
    keys: QueueNaming


def convert(system: str, source: ImportSource) -> Imported:
    """Documents of a system's files. Pure. Raises InvalidDocumentsError where a file can't be read, or GPU types can't be told."""
    drawing = SYSTEMS[system](source)
    settle(drawing.draft)
    files = files_of(drawing.draft)
    report = ImportReport(
        system=system,
        inputs=tuple(file.name for file in source.files),
        written=tuple(sorted(files)),
        entries=drawing.account.entries(),
        adjustments=tuple(Adjustment(queue, message) for queue, message in drawing.draft.adjustments),
        renamings=tuple(each for names in (drawing.queues, drawing.classes) for each in names.renamings),
        problems=(),
    )
    naming = QueueNaming(drawing.queues.by_key, drawing.classes.by_key, drawing.types.said)
    return Imported(files, report, drawing.queues.by_wanted, naming)
