"""The shipped example of a busy cluster is what its script makes: 4,000 GPUs, nearly all in use, and jobs that could run."""

from __future__ import annotations

from hack.busy_cluster import EXAMPLE, busy_repository, busy_snapshot
from reconciler.cli.inputs import read_snapshot_file
from solver.round.solve import standing


def test_the_script_makes_the_file_that_is_shipped() -> None:
    made, shipped = busy_snapshot(), read_snapshot_file(EXAMPLE)
    assert (made.digest, made) == (shipped.digest, shipped)
    assert EXAMPLE.stat().st_size < 100_000
    assert busy_snapshot(seed=1).digest != made.digest


def test_it_is_busy_and_every_job_may_run() -> None:
    snapshot, policy = busy_snapshot(), busy_repository().policy
    gpus = sum(len(node.gpus) for node in snapshot.nodes)
    held = [task for job in snapshot.jobs for task in job.placement]
    devices = [device for task in held for device in task.devices]
    assert (gpus, len(snapshot.nodes), len(devices)) == (4000, 500, len(set(devices)))
    assert 0.94 < sum(task.gpus for task in held) / 1000 / gpus < 1
    _, admissions = standing(snapshot, policy)
    assert len(admissions) > 300
    assert all(admission.options for admission in admissions.values())
