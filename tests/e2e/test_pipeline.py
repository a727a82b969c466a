"""A real control plane takes the branches of a pipeline that its conditions say, and hands files from job to job."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.documents.slurm.job import Submitter, job_of
from solver.model.document import encode
from tests.e2e.control_plane import ControlPlane, until

pytestmark = pytest.mark.thorough

DONE = {"succeeded", "failed", "cancelled"}


def job(script: str, *, array: str = "") -> str:
    indices = f"array: {{indices: {array}, maxRunning: 1}}, " if array else ""
    group = "{name: w, replicas: 1, shape: {gpus: 1, cpu: 1, memory: 64Mi}}"
    return f"{{queue: team, {indices}taskGroups: [{group}], command: [sh, -c, '{script}']}}"


WRITE = 'mkdir -p "${QUORATE_OUTPUT_DATA%/*}" && echo prepared >"$QUORATE_OUTPUT_DATA"'


def pipeline(artifacts: Path) -> bytes:
    return f"""\
apiVersion: quorate.dev/v1
kind: Pipeline
metadata: {{name: run}}
spec:
  artifacts: file://{artifacts}
  jobs:
    - {{name: prepare, outputs: {{data: data.txt}}, spec: {job(WRITE)}}}
    - {{name: train, dependsOn: [{{job: prepare}}], spec: {job('cat "$QUORATE_INPUT_PREPARE_DATA"; exit 3')}}}
    - {{name: publish, dependsOn: [{{job: train}}], spec: {job("true")}}}
    - {{name: clean, dependsOn: [{{job: train, condition: afternotok}}], spec: {job("echo cleaned")}}}
    - name: sweep
      dependsOn: [{{job: publish, condition: afterany}}, {{job: clean}}]
      spec: {job('echo "element $QUORATE_ARRAY_INDEX of $QUORATE_ARRAY_COUNT"', array="2-3")}
""".encode()


def test_a_failure_takes_the_branches_that_the_conditions_say(plane: ControlPlane, tmp_path: Path) -> None:
    plane.start()
    plane.until_ready()
    with plane.client() as client:
        client.submit_group(pipeline(tmp_path / "artifacts"), "key")
        until("every job has ended", lambda: client.group("run").counts.keys() <= DONE)
        states = {each.name: (each.state, each.code) for each in client.group("run").jobs}
        assert states == {
            "run-prepare": ("succeeded", 0),
            "run-train": ("failed", 3),
            "run-publish": ("cancelled", 0),
            "run-clean": ("succeeded", 0),
            "run-sweep-2": ("succeeded", 0),
            "run-sweep-3": ("succeeded", 0),
        }
        assert client.log("run-train") == b"prepared\n"
        assert client.log("run-sweep-3") == b"element 3 of 2\n"
        assert client.job("run-publish").attempt == 0
        first, second = (client.events(f"run-sweep-{index}").items for index in (2, 3))
        assert max(event.time for event in first if event.kind == "released") <= next(
            event.time for event in second if event.kind == "bound"
        )
    (end,) = [event for event in plane.events("run-publish") if event.kind == "cancelled"]
    assert end.cause == "dependency afterok run-train can't come true any more: 1 failed"


def test_a_batch_script_runs_as_a_job(plane: ControlPlane, tmp_path: Path) -> None:
    flags = "#SBATCH -J from-slurm -p team -n 2 --gpus-per-task=1 --mem=64M"
    text = f"#!/bin/bash\n{flags}\necho rank $SLURM_PROCID of $SLURM_NTASKS $1\n"
    plane.start()
    plane.until_ready()
    with plane.client() as client:
        client.submit_document(encode(job_of(text, "run.sh", ["fast"], Submitter(str(tmp_path), {})).document))
        until("it has ended", lambda: client.job("from-slurm").outcome)
        assert client.job("from-slurm").state == "succeeded"
        assert client.log("from-slurm", index=1) == b"rank 1 of 2 fast\n"
