"""What a round says of a job, as sentences."""

from __future__ import annotations

from solver.plan.plan import Departs, Inadmissible, Moves, Runs, Starts, Verdict, Waits, Yields


def verdict_words(verdict: Verdict) -> tuple[str, ...]:
    """What a round says of a job, as sentences."""
    match verdict:
        case Starts(gpus=gpus, entitled=entitled, extent=extent):
            where = f", {extent}" if extent else ""
            return (f"it starts: {gpus} GPUs, {entitled} of them inside the guarantee{where}",)
        case Runs():
            return ("it holds its devices and keeps them",)
        case Yields() | Departs() | Moves():
            return (f"it {verdict}",)
        case Waits(reasons=reasons, estimate=estimate):
            return tuple(map(str, (*reasons, estimate) if estimate else reasons))
        case Inadmissible(reasons=reasons):
            return tuple(map(str, reasons))
