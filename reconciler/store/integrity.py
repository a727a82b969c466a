"""Looks for what must never be in a database: damage, documents that can't be read, and holdings that contradict each other."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
from sqlalchemy import Column, Connection, func, literal, select, text

from reconciler.model.checkpoint_findings import AnyFinding
from reconciler.model.envelope import Envelope
from reconciler.model.failure import Failure
from reconciler.model.job_record import ArrayElement, JobOutcome
from reconciler.protocols.ledger import Marks
from reconciler.protocols.rounds import NarrowRecord, RoundRecord
from reconciler.store.database import Database
from reconciler.store.gpu_use import BLOCK_STEPS
from reconciler.store.migrations import is_in, version_of
from reconciler.store.round_records import BadPackingError, unpack
from reconciler.store.tables import (
    accepted_plans,
    attempts,
    checkpoints,
    claims,
    failures,
    gpu_use,
    holdings,
    intents,
    jobs,
    nominations,
    partitions,
    reservations,
    rounds,
)
from reconciler.store.use_blocks import UseBlock
from solver.model.cluster import GpuType
from solver.model.document import decode
from solver.model.inflight import Intent, Repartitioning, Reservation
from solver.model.quantities import MILLI_PER_GPU
from solver.model.workload import JobSpec, TaskPlacement

_DOCUMENTS: Final[tuple[tuple[Column[Any], Any], ...]] = (
    (jobs.c.spec, JobSpec),
    (jobs.c.outcome, JobOutcome),
    (jobs.c.array, ArrayElement),
    (failures.c.failure, Failure),
    (claims.c.tasks, tuple[TaskPlacement, ...]),
    (claims.c.marks, Marks),
    (claims.c.gpu_types, tuple[tuple[str, GpuType], ...]),
    (intents.c.intent, Intent),
    (nominations.c.intent, Intent),
    (reservations.c.reservation, Reservation),
    (partitions.c.asked, Repartitioning),
    (checkpoints.c.findings, tuple[AnyFinding, ...]),
    (accepted_plans.c.envelope, Envelope),
)


def problems_of(database: Database, tell: Callable[[str], None] = lambda _: None) -> Iterator[str]:
    """Everything that is wrong, each with its row; reads it all, in one transaction. Raises StoreUnusableError.

    `tell` hears what is looked at.
    """
    with database.reading() as connection:
        tell("pages")
        yield from _damage(connection)
        version = version_of(connection)
        for column, kind in _DOCUMENTS:
            if not is_in(column, version):
                continue
            tell(f"{column.table.name}.{column.name}")
            yield from _unreadable(connection, column, kind)
        tell("rounds.record")
        yield from _unreadable_rounds(connection, version)
        if is_in(gpu_use.c.block, version):
            tell("gpu_use.block")
            yield from _unreadable_use(connection)
        tell("holdings")
        yield from _overheld(connection)
        yield from _unlike_their_claims(connection)
        yield from _attempts_ahead(connection)


def _damage(connection: Connection) -> Iterator[str]:
    """What SQLite itself finds. PostgreSQL looks at the checksums of pages, where it has them, whenever it reads them."""
    if connection.dialect.name == "sqlite":
        for (said,) in connection.execute(text("PRAGMA integrity_check")):
            if said != "ok":
                yield f"damage: {said}"
        for table, row, parent, _ in connection.execute(text("PRAGMA foreign_key_check")):
            yield f"{table} {row}: refers to a row of {parent} that is not there"


def _unreadable(connection: Connection, column: Column[Any], kind: Any) -> Iterator[str]:
    keys = column.table.primary_key.columns
    stored = select(*keys, column.label("document")).where(column.is_not(None)).execution_options(yield_per=100)
    for *key, document in connection.execute(stored):
        try:
            decode(document, kind)
        except msgspec.MsgspecError as error:
            yield f"{column.table.name} {'/'.join(map(str, key))}: its {column.name} can't be read ({error})"


def _unreadable_rounds(connection: Connection, version: int) -> Iterator[str]:
    """Records of rounds, each with its keyframe; those that are packed against the same one come after it."""
    keyframe = rounds.c.keyframe if is_in(rounds.c.keyframe, version) else literal(0)
    base = rounds.c.base if is_in(rounds.c.base, version) else literal(None)
    columns = rounds.c.number, keyframe.label("keyframe"), base.label("base"), rounds.c.record
    known = 0, b""
    for row in connection.execute(select(*columns).order_by(rounds.c.number).execution_options(yield_per=100)):
        if row.base:
            yield from _unreadable_narrow(row.number, row.record)
            continue
        if row.keyframe and row.keyframe != known[0]:
            yield f"rounds {row.number}: its keyframe {row.keyframe} is not there, or can't be read"
            continue
        try:
            text = unpack(row.record, known[1] if row.keyframe else b"")
            decode(text, RoundRecord)
        except (msgspec.MsgspecError, BadPackingError) as error:
            yield f"rounds {row.number}: its record can't be read ({error})"
            continue
        known = known if row.keyframe else (row.number, text)


def _unreadable_narrow(number: int, record: bytes) -> Iterator[str]:
    try:
        decode(unpack(record), NarrowRecord)
    except (msgspec.MsgspecError, BadPackingError) as error:
        yield f"rounds {number}: its record can't be read ({error})"


def _unreadable_use(connection: Connection) -> Iterator[str]:
    for row in connection.execute(select(gpu_use).execution_options(yield_per=100)):
        try:
            UseBlock.unpacked(row.node, BLOCK_STEPS[row.step], row.block)
        except (KeyError, BadPackingError) as error:
            yield f"gpu_use {row.step}/{row.start}/{row.node}: its block can't be read ({error})"


def _overheld(connection: Connection) -> Iterator[str]:
    """GPUs that are held twice; also a whole GPU beside instances of it."""
    held = select(holdings.c.device, func.sum(holdings.c.milli)).group_by(holdings.c.device)
    for device, milli in connection.execute(held.having(func.sum(holdings.c.milli) > MILLI_PER_GPU)):
        yield f"holdings {device}: {milli} thousandths of it are held"
    of_gpu: defaultdict[str, set[str]] = defaultdict(set)
    for device, gpu in connection.execute(select(holdings.c.device, holdings.c.gpu)):
        of_gpu[gpu].add(device)
    for gpu, devices in sorted(of_gpu.items()):
        if gpu in devices and len(devices) > 1:
            yield f"holdings {gpu}: it is held as a whole, and in instances"


def _unlike_their_claims(connection: Connection) -> Iterator[str]:
    """Claims whose tasks are placed on other devices than those that are held for them."""
    held: defaultdict[str, set[str]] = defaultdict(set)
    for job, device in connection.execute(select(holdings.c.job, holdings.c.device)):
        held[job].add(device)
    for job, tasks in connection.execute(select(claims.c.job, claims.c.tasks).order_by(claims.c.job)):
        try:
            placed = Counter(device for task in decode(tasks, tuple[TaskPlacement, ...]) for device in task.devices)
        except msgspec.MsgspecError:
            continue  # said above
        if set(placed) != held[job]:
            yield f"claims {job}: its tasks are on {sorted(placed)}, and it holds {sorted(held[job])}"


def _attempts_ahead(connection: Connection) -> Iterator[str]:
    """Claims of an attempt whose number was never given out."""
    last = select(claims.c.job, claims.c.attempt, attempts.c.last).outerjoin(attempts, attempts.c.job == claims.c.job)
    for job, attempt, known in connection.execute(last.order_by(claims.c.job)):
        if known is None or known < attempt:
            yield f"attempts {job}: attempt {attempt} is held, and the last was {known}"
