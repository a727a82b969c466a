"""Jobs and pipelines that are called the same, one after the other, as real processes: what is kept of each is its own."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from reconciler.client import ApiError
from reconciler.control.replay import replay
from solver.milp.highs import optimise
from solver.model.workload import JobName
from tests.e2e.control_plane import ControlPlane, sh, until
from tests.e2e.test_pipeline import DONE, WRITE, job
from tests.reconciler.gitops.source.origin import Origin

SAYS = 'echo "run {} as $QUORATE_JOB, attempt $QUORATE_ATTEMPT"'


@pytest.mark.thorough
def test_runs_of_one_name_share_nothing(plane: ControlPlane) -> None:
    plane.start().until_ready()
    with plane.client() as client:
        for number in range(1, 4):
            job = str(client.submit(JobName("train"), sh(SAYS.format(number))).name)
            assert job == ("train" if number == 1 else f"train#{number}")
            until("it has ended", lambda job=job: client.job(job).outcome)  # type: ignore[misc]
        live = client.submit(JobName("train"), sh("sleep 1000")).name
        with pytest.raises(ApiError, match="has not ended"):
            client.submit(JobName("train"), sh("true"))
        until("it runs", lambda: client.job(live).state == "running")
        client.cancel(live)
        until("it was cancelled", lambda: client.job(live).outcome)
        for number in range(1, 4):
            job = "train" if number == 1 else f"train#{number}"
            assert client.job(job).state == "succeeded"
            assert client.log(job).decode() == f"run {number} as {job}, attempt 1\n"
            assert {event.subject for event in client.events(job).items} == {job}
        assert client.newest("train") == live == "train#4"


SAVE = (
    'folder="${QUORATE_CHECKPOINT_URL#file://}"; mkdir -p "$folder"; echo "$QUORATE_JOB" >>"$folder/who"; '
    'cat "$folder/who" "$QUORATE_INPUT_PREPARE_DATA"; echo "$QUORATE_PIPELINE $QUORATE_ARRAY_ID $QUORATE_ARRAY_INDEX"'
)


STORED = (
    "apiVersion: quorate.dev/v1\nkind: CheckpointPolicy\nmetadata: {{name: default}}\nspec: {{storage: 'file://{}'}}\n"
)


def nightly(artifacts: Path) -> bytes:
    """A job that hands a file on, and an array that saves its work."""
    fit = job(SAVE, array="0-1").replace("queue: team", "queue: team, checkpoint: {interval: 30m}")
    return f"""\
apiVersion: quorate.dev/v1
kind: Pipeline
metadata: {{name: nightly}}
spec:
  artifacts: file://{artifacts}
  jobs:
    - {{name: prepare, outputs: {{data: data.txt}}, spec: {job(WRITE)}}}
    - {{name: fit, dependsOn: [{{job: prepare}}], spec: {fit}}}
""".encode()


@pytest.mark.thorough
def test_runs_of_one_pipeline_share_nothing_also_beside_crashes(
    plane: ControlPlane, origin: Origin, tmp_path: Path
) -> None:
    """The control plane is killed between the end of one and the next submission, and while the next one runs."""
    document = nightly(tmp_path / "artifacts")
    origin.commit({"policies/checkpoints.yaml": STORED.format(tmp_path / "saved")})
    for number in (1, 2):
        group = "nightly" if number == 1 else f"nightly#{number}"
        plane.start().until_ready()
        with plane.client() as client:
            assert client.submit_group(document, f"key-{number}").name == group
            with pytest.raises(ApiError, match="has not ended"):
                client.submit_group(document, "another")
        plane.signal(signal.SIGKILL)
        plane.start().until_ready()
        with plane.client() as client:
            assert client.submit_group(document, f"key-{number}").name == group
            until("all of it has ended", lambda client=client, group=group: client.group(group).counts.keys() <= DONE)  # type: ignore[misc]
            assert client.newest("nightly") == group
        plane.signal(signal.SIGKILL)
    plane.start().until_ready()
    with plane.client() as client:
        for group in ("nightly", "nightly#2"):
            assert client.group(group).counts == {"succeeded": 3}
            for index in (0, 1):
                assert client.log(f"{group}-fit-{index}").decode().splitlines() == [
                    f"{group}-fit-{index}", "prepared", f"{group} {group}-fit {index}"
                ]  # fmt: skip
        assert len(client.jobs().items) == 6
        rounds = [client.round(summary.number) for summary in client.all_rounds()]
        assert all(replay(each, optimise).identical for each in rounds)
    assert sorted(each.name for each in (tmp_path / "artifacts").iterdir()) == ["nightly", "nightly.2"]
    assert {each.name for each in (tmp_path / "saved").iterdir()} == {
        f"nightly{number}-fit-{index}" for number in ("", ".2") for index in (0, 1)
    }
