"""The console over a busy cluster of 4,000 GPUs, to be looked at: `make demo-console`, until Ctrl-C.

A real `quorate run`, in a folder that is gone afterwards; its cluster is simulated. Begun from the example snapshot, it decides
rounds, and what is asked for in the browser is done.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import click
import msgspec

from hack.busy_cluster import REPOSITORY, busy_snapshot
from hack.control_plane.plane import PlaneFailedError, SimulatedPlane
from reconciler.model.clock import SystemClock
from reconciler.model.job_groups import Submission
from reconciler.protocols.ledger import Claim
from reconciler.server.store_access import SOLE_HOLDER
from reconciler.store.store import SqlStore, open_store
from solver.model.cluster import GpuType, NodeName
from solver.model.inflight import Intent
from solver.model.quantities import Duration, Instant
from solver.model.snapshot import Snapshot
from solver.model.workload import Job

AT_ONCE: Final = 250
LIMIT_S: Final = 120.0


@click.command()
@click.option("--for", "lasts_s", type=click.FloatRange(min=0), help="Seconds after which it ends by itself.")
def main(lasts_s: float | None) -> None:
    """Serve it, and say where."""
    # Who ends this process ends the control plane, too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="quorate-console-") as name:
        folder = Path(name)
        plane = SimulatedPlane(folder, _repository(folder / "policy"))
        (plane.state.path / "tasks").mkdir(mode=0o700, parents=True)
        plane.state.path.chmod(0o700)
        store = open_store(plane.state.database)
        fill(store, busy_snapshot(), SystemClock().now())
        store.close()
        click.echo("A busy cluster of 4,000 GPUs is being started ...", err=True)
        try:
            plane.start(LIMIT_S)
            click.echo(f"The console: {plane.url}/\nThe token:   {plane.state.token.read_text().strip()}")
            click.echo("Ctrl-C ends it.", err=True)
            _wait(plane, lasts_s)
        except PlaneFailedError as failure:
            click.echo(f"demo failed: {failure}", err=True)
            sys.exit(1)
        except KeyboardInterrupt:
            pass
        finally:
            plane.stop()


def _wait(plane: SimulatedPlane, lasts_s: float | None) -> None:
    began_s = time.monotonic()
    while plane.is_alive and (lasts_s is None or time.monotonic() < began_s + lasts_s):
        time.sleep(0.2)


def _repository(folder: Path) -> Path:
    """The policy of the example, in Git."""
    shutil.copytree(REPOSITORY, folder)
    identity = ("-c", "user.name=demo", "-c", "user.email=demo@example.com")
    for command in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "A busy cluster"]):
        subprocess.run(
            ["git", *identity, *command], cwd=folder, check=True, env={**os.environ, "GIT_CONFIG_GLOBAL": ""}
        )
    return folder


def fill(store: SqlStore, snapshot: Snapshot, now: Instant) -> None:
    """Write what runs and what waits as if rounds had decided it. Jobs on MIG instances are left out: nothing made these."""
    later = now - snapshot.time
    jobs = [_begun_anew(job, later) for job in snapshot.jobs if not any(task.mig for task in job.placement)]
    types = {node.name: node.gpu_type for node in snapshot.nodes}
    epoch = store.ledger.lead(SOLE_HOLDER, now, Duration(60_000))
    for some in _pieces(jobs):
        store.jobs.submit_each([Submission(job.name, job.spec, job.user, job.submitted_at) for job in some])
        running = [job for job in some if job.placement]
        wanted = [(_claim(job, now, types), _start(job, now)) for job in running]
        refused = store.ledger.claim_all(epoch, wanted)
        seen = [(claim.job, 1, claim.since) for claim, _ in wanted if claim.job not in refused]
        store.ledger.confirm_running_all(epoch, seen)
    store.ledger.resign(epoch)


def _begun_anew(job: Job, later: int) -> Job:
    """So much later than it was; it runs until it is told to end."""
    spec = msgspec.structs.replace(job.spec, command=("sleep", "forever"))
    began = None if job.started_at is None else job.started_at.after(later)
    return msgspec.structs.replace(job, spec=spec, submitted_at=job.submitted_at.after(later), started_at=began)


def _pieces(jobs: list[Job]) -> Iterator[list[Job]]:
    for first in range(0, len(jobs), AT_ONCE):
        yield jobs[first : first + AT_ONCE]


def _claim(job: Job, now: Instant, types: Mapping[NodeName, GpuType]) -> Claim:
    gpu_types = tuple({task.group: types[task.node] for task in job.placement if task.devices}.items())
    return Claim(job.name, 1, job.placement, job.started_at or now, time_limit=job.time_limit, gpu_types=gpu_types)


def _start(job: Job, now: Instant) -> Intent:
    return Intent("start", job.name, 1, now, now, job.placement)


if __name__ == "__main__":
    main()
