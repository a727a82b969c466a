"""How unkind the simulated world is."""

from __future__ import annotations

from solver.model.document import Document
from solver.model.quantities import Duration


class Faults(Document, frozen=True):
    """Probabilities per message, and the longest of each delay; delays are drawn evenly from 0 up.

    `lost`: the order vanishes. `late`: it arrives after the sender has given up. `unacknowledged`: it arrives and the
    sender never hears so. All three are a BackendUnreachableError to the sender. `blind`: `changes` is unreachable.
    `unpartitioned`: a GPU that is to be partitioned anew stops half-way, without what was to go and without what was to come.
    `unwatched`: a look at what a task does is left out.
    """

    lost: float = 0.0
    late: float = 0.0
    unacknowledged: float = 0.0
    blind: float = 0.0
    unpartitioned: float = 0.0
    unwatched: float = 0.0
    arrival_delay: Duration = Duration(0)
    effect_delay: Duration = Duration(0)
    report_delay: Duration = Duration(0)


KIND = Faults()
UNKIND = Faults(
    lost=0.1,
    late=0.1,
    unacknowledged=0.1,
    blind=0.1,
    unpartitioned=0.1,
    unwatched=0.3,
    arrival_delay=Duration(60_000),
    effect_delay=Duration(8_000),
    report_delay=Duration(5_000),
)
"""A late order may arrive long after the start deadline of the tests has passed: that is the dangerous case."""
