"""One trial: a writer on a disk that fails, another after it on one that does not, and what a judge then finds in the file."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args

from reconciler.protocols.store_errors import StoreUnusableError
from reconciler.store.integrity import problems_of
from reconciler.store.store import open_store
from solver.model.workload import JobName

DiskFault = Literal["full", "eio", "sync-eio", "slow", "power", "torn"]
FAULTS: tuple[DiskFault, ...] = get_args(DiskFault)
JOBS, MORE_JOBS = 6, 2
WRITES: Final = 150
"""About so many writes its jobs take; faults begin at one of them."""
WITHIN_S: Final = 120
SAID: dict[str, str] = {
    "full": "disk is full",
    "eio": "disk fails to read or write",
    "sync-eio": "disk fails to read or write",
}
"""What a person is told of it."""


@dataclass(frozen=True, slots=True)
class DiskTrial:
    """What came of one. `exit_code` of the first writer: 0, 3 where a person has to act, -9 where the power went."""

    seed: int
    fault: DiskFault
    lying: bool
    exit_code: int
    acknowledged: int
    refused: tuple[str, ...]
    problems: tuple[str, ...]


class NoCompilerError(Exception):
    """There is no C compiler, so no disk can be made to fail."""


def build(folder: Path) -> Path:
    """The shim. Raises NoCompilerError."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise NoCompilerError("no cc: `apt-get install gcc`, or the like")
    made = folder / "shim.so"
    source = Path(__file__).with_name("shim.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", made, source, "-ldl"], check=True)
    return made


def trial(seed: int, fault: DiskFault, shim: Path, *, lying: bool = False) -> DiskTrial:
    """What a fault at a drawn moment does."""
    chance = random.Random(f"disk {seed} {fault} {lying}")
    with tempfile.TemporaryDirectory(prefix="quorate-disk-") as name:
        folder = Path(name)
        faulty = {"LD_PRELOAD": str(shim), "FAULTY_FOLDER": str(folder), "FAULT": fault, "FAULT_SEED": str(seed)}
        when = {"FAULT_AT": str(chance.randrange(1, WRITES)), "FAULT_FOR": str(chance.choice((1, 5, 40)))}
        store = folder / "quorate.db"
        open_store(store).close()
        first = _write(store, "first", JOBS, faulty | when | {"LYING": str(int(lying))})
        second = _write(store, "second", MORE_JOBS, {})
        said = [*first.stdout.splitlines(), *second.stdout.splitlines()]
        refused = tuple(line for line in first.stdout.splitlines() if line.startswith("refused"))
        problems = [*judge(store, said), *_manners(fault, first.returncode, refused, first.stderr), *_came_back(second)]
        acknowledged = sum(line.split()[0] in ("job", "claim", "event", "done") for line in said)
        return DiskTrial(seed, fault, lying, first.returncode, acknowledged, refused, tuple(problems))


def _write(store: Path, run: str, jobs: int, more: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hack.store_faults.writer", str(store), run, str(jobs)]
    return subprocess.run(command, env=os.environ | more, capture_output=True, text=True, timeout=WITHIN_S, check=False)


def judge(where: Path | str, said: Sequence[str]) -> Iterator[str]:
    """Of a store, by its path or URL: what was acknowledged and is not there; and what can't be read or contradicts itself."""
    try:
        store = open_store(where)
    except StoreUnusableError as error:
        yield f"noticed: {error}"
        return
    try:
        yield from (f"damaged: {found}" for found in problems_of(store.database))
        records = {record.name: record for record in store.jobs.jobs()}
        claimed = [name for name in records if store.ledger.last_attempt(name)]
        for line in dict.fromkeys(said):
            kind, _, name = line.partition(" ")
            yield from _lost(kind, JobName(name), records.keys(), claimed, line)
            if kind == "done" and (name not in records or records[JobName(name)].outcome is None):
                yield f"lost: {line}"
            if kind == "event" and not any(event.kind == "told" for event in store.history.events(name)):
                yield f"lost: {line}"
        yield from (f"left over: {claim.job} holds a device" for claim in store.ledger.claims())
    except StoreUnusableError as error:
        yield f"noticed: {error}"
    finally:
        store.close()


def _lost(kind: str, name: JobName, jobs: Collection[str], claimed: Collection[str], line: str) -> Iterator[str]:
    if (kind == "job" and name not in jobs) or (kind == "claim" and name not in claimed):
        yield f"lost: {line}"


def _manners(fault: DiskFault, exit_code: int, refused: Sequence[str], stderr: str) -> Iterator[str]:
    """A process goes on or ends in words: it leaves no traceback."""
    if "Traceback" in stderr:
        yield f"traceback: {stderr.strip().splitlines()[-1]}"
    wanted = {"full": (0,), "slow": (0,), "power": (-9, 0), "torn": (-9, 0)}.get(fault, (0, 3))
    if exit_code not in wanted:
        yield f"ended with {exit_code}"
    words = SAID.get(fault, "")
    yield from (f"unclear: {line}" for line in refused if words and words not in line)


def _came_back(second: subprocess.CompletedProcess[str]) -> Iterator[str]:
    if second.returncode:
        said = [line for line in second.stdout.splitlines() if line.startswith("refused")]
        yield f"not back: the next process ended with {second.returncode}: {said[-1] if said else second.stderr.strip()[-200:]}"
