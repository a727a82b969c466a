"""`quorate run --slurm --observe` as a process beside commands of Slurm, and what `status` and its end say."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from reconciler.analysis.backtest.past import read_recorded
from reconciler.cli.main import cli
from reconciler.client import ApiError
from tests.e2e.control_plane import POLICY, ControlPlane, sh, submit, until
from tests.reconciler.gitops.source.origin import Origin
from tests.reconciler.slurm.fake_slurm import FakeJob, FakeSlurm


@pytest.mark.thorough
def test_a_day_beside_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm hangs for a while in the middle, and the process ends at once even so."""
    slurm = FakeSlurm(tmp_path / "slurm", begin=int(time.time()) - 600)
    monkeypatch.setenv("PATH", f"{slurm.folder}{os.pathsep}{os.environ['PATH']}")
    origin = Origin(tmp_path / "policy")
    origin.commit(
        {
            **POLICY,
            "cluster-state/pool.yaml": POLICY["cluster-state/pool.yaml"].replace(
                "prefix: n, count: 2", "names: [n1, n2]"
            ),
        }
    )
    plane = ControlPlane(origin.folder, tmp_path / "state")
    try:
        runs = FakeJob(1, "RUNNING", "n1", started=1, account="", partition="team")
        slurm.show(runs, FakeJob(2, account="lab_7", partition="team"))
        plane.start("--slurm", "--observe", "--slurm-every", "1s")
        with plane.client() as client:
            until("it would start", lambda: (found := client.status().beside) and found.counts.would_start)
            until("both are seen", lambda: {view.state for view in client.jobs().items} == {"running", "queued"})
            with pytest.raises(ApiError, match="Submit it with `sbatch`"):
                submit(client, ["mine"], sh("true"))
            slurm.show(runs, FakeJob(2, "RUNNING", "n2", account="lab_7", partition="team", started=1_000))
            until("it is matched", lambda: (found := client.status().beside) and found.counts.would_start == 0)
            slurm.fails("squeue", "slurm_load_jobs error: Unable to contact slurm controller")
            until("it is told", lambda: (found := client.status().beside) and found.failed)
            asked = CliRunner().invoke(
                cli, ["status", "--server", client.server], env={"QUORATE_STATE": str(plane.folder.path)}
            )
            assert "Beside Slurm" in asked.output
            assert "Unable to contact slurm controller" in asked.output
            told = CliRunner().invoke(
                cli, ["status", "-o", "json", "--server", client.server], env={"QUORATE_STATE": str(plane.folder.path)}
            )
            assert (
                json.loads(told.output)["beside"]["counts"]["earlier"]
                + json.loads(told.output)["beside"]["counts"]["same"]
                == 1
            )
            slurm.goes_on("squeue")
            slurm.hangs("squeue")
            until("it is asked again", lambda: slurm.calls[-1].startswith("squeue"))
        assert plane.signal(signal.SIGTERM) == 0
        assert plane.logged("observed-beside-slurm")
        assert {job.name for job in read_recorded(plane.folder.observed)[1]} == {"train-1", "train-2"}
        assert {call.split()[0] for call in slurm.calls} <= {"squeue", "scontrol", "sinfo"}
    finally:
        plane.end()
