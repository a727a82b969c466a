"""Plans as files: written by `quorate plan --out`, read by `quorate apply`."""

from __future__ import annotations

from pathlib import Path

import msgspec

from reconciler.cli.inputs import unreadable
from reconciler.cli.output import CommandFailedError
from reconciler.model.envelope import Envelope, SavedPlan
from reconciler.model.review_findings import Review
from solver.model.document import decode, encode


def envelope_of(found: Review, gap: float, jobs: int | None, gpu_h: float | None, *, exact: bool) -> Envelope:
    """Around what a review foresees, or around as many evicted jobs and lost GPU-hours as are granted, if these are more."""
    envelope = Envelope.of(found, gap, exact)
    harm = envelope.accepts
    wider = msgspec.structs.replace(
        harm, evicted_jobs=max(harm.evicted_jobs, jobs or 0), lost_gpu_h=max(harm.lost_gpu_h, gpu_h or 0.0)
    )
    return msgspec.structs.replace(envelope, accepts=wider)


def write_plan(plan: SavedPlan, out: Path) -> None:
    """As JSON, for `quorate apply` and for programs."""
    try:
        out.write_bytes(encode(plan) + b"\n")
    except OSError as error:
        raise unreadable(error, out) from error


def read_plan(path: Path) -> SavedPlan:
    """What `write_plan` wrote."""
    try:
        return decode(path.read_bytes(), SavedPlan)
    except OSError as error:
        raise unreadable(error, path) from error
    except msgspec.MsgspecError as error:
        fix = "Name a file that `quorate plan --out` wrote."
        raise CommandFailedError(f"this is no saved plan: {error}", place=str(path), fix=fix) from error
