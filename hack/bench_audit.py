"""What the audit chain costs: CPU per event with and without it, bytes per link, and how fast it is verified.

    python -m hack.bench_audit --events 20000

CPU seconds of this process, so that a busy machine changes little.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click

from reconciler.access.audit_keys import AuditKeyFile
from reconciler.analysis.audit.verification import verified
from reconciler.protocols.audit import entries_of
from reconciler.protocols.history import Event
from reconciler.store.store import SqlStore, open_store
from solver.model.quantities import Instant

START = Instant.parse("2026-03-01T00:00:00Z")
SIZES = (1, 10, 100, 500)
"""Events in one write."""


@click.command()
@click.option("--events", default=20_000, show_default=True, help="How many are recorded in the largest writes.")
def main(events: int) -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as folder:
        keys = AuditKeyFile(Path(folder) / "keys")
        keys.begin()
        without, linked = Path(folder) / "without.db", Path(folder) / "linked.db"
        plain, chained = open_store(without), open_store(linked, audit_keys=keys)
        click.echo(f"{'events a write':>14} {'us of CPU':>10} {'with links':>10}")
        for size in SIZES:
            number = max(200, events * size // SIZES[-1])
            figures = [_cost(partial(_record, store, number, size)) / number for store in (plain, chained)]
            click.echo(f"{size:>14} {figures[0] * 1e6:>10.1f} {figures[1] * 1e6:>10.1f}")
        recorded = chained.history.newest_event()
        took = _cost(lambda: verified(entries_of(chained.audit), keys.keys()))
        for store in (plain, chained):
            store.close()
        more = linked.stat().st_size - without.stat().st_size
        click.echo(
            f"{recorded} events: {more / recorded:.0f} bytes a link; verified at {recorded / took:,.0f} a second of CPU"
        )


def _record(store: SqlStore, number: int, size: int) -> None:
    for first in range(0, number, size):
        store.history.record_events(
            Event(
                START.after(first + each),
                "bound",
                f"job-{first + each}",
                "on node h100-a-1",
                "control-plane",
                "bound",
                1,
            )
            for each in range(size)
        )


def _cost(work: Callable[[], object]) -> float:
    began_s = time.process_time()
    work()
    return time.process_time() - began_s


if __name__ == "__main__":
    main()
