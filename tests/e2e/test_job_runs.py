"""Jobs that are called the same, one after the other, as real processes: logs and events of each are its own."""

from __future__ import annotations

import pytest

from reconciler.client import ApiError
from solver.model.workload import JobName
from tests.e2e.control_plane import ControlPlane, sh, until

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
