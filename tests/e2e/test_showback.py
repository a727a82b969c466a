"""Showback of a real control plane that is killed and begun again, while a job runs and a node is closed: it adds up."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest

from reconciler.access.token_file import read_token
from reconciler.api.showback_payloads import Showback
from reconciler.client import Client
from solver.model.workload import JobName
from tests.e2e.control_plane import POLICY, QUORATE, ControlPlane, sh, until
from tests.reconciler.gitops.source.origin import Origin

GPUS = 8
TRAIN = JobName("train")
CARD = (
    "apiVersion: quorate.dev/v1\nkind: RateCard\nmetadata: {name: rates}\n"
    "spec: {from: 2020-01-01T00:00:00Z, currency: EUR, rates: [{perGpuHour: 2}]}\n"
)


def adds_up(found: Showback) -> None:
    """Each GPU is in one state all the time, and what was allocated is in the rows."""
    lasted = Decimal(found.end - found.start) / 1_000
    assert sum(row.capacity for row in found.capacity) == GPUS * lasted
    for row in found.capacity:
        assert row.allocated + row.idle + row.reserved + row.unhealthy + row.partitioning == row.capacity
    assert sum(row.allocated for row in found.rows) == sum(row.allocated for row in found.capacity)
    assert found.overheld == 0


def held_now(client: Client) -> bool:
    return any(held.until is None for row in client.past.timeline().rows for held in row.spans)


def quorate(plane: ControlPlane, *arguments: str) -> str:
    known = {"QUORATE_SERVER": plane.logged("listening")[-1]["url"], "QUORATE_TOKEN": read_token(plane.folder.token)}
    asked = [sys.executable, *QUORATE, "showback", *arguments]
    return subprocess.run(asked, env=os.environ | known, capture_output=True, text=True, check=True).stdout


@pytest.mark.thorough
def test_a_control_plane_that_is_killed_leaves_no_second_out(
    plane: ControlPlane, origin: Origin, tmp_path: Path
) -> None:
    origin.commit(POLICY | {"policies/rates.yaml": CARD})
    enough = tmp_path / "enough"
    waits = f"while [ ! -e {enough} ]; do sleep 0.05; done"
    plane.start().until_ready()
    with plane.client() as client:
        client.submit(TRAIN, sh(waits, tasks=2))
        until("it runs", lambda: client.job(TRAIN).state == "running")
        adds_up(client.past.showback("job"))
    plane.signal(signal.SIGKILL)
    plane.start().until_ready()
    with plane.client() as client:
        client.by_hand.cordon("n2", "its fan is loud", "1h")
        until("a pass has seen it", lambda: client.past.showback().capacity[0].unhealthy)
        enough.touch()
        until("it has ended", lambda: client.job(TRAIN).outcome)
        until("its GPUs are given back", lambda: not held_now(client))
        until("a second is over", lambda: client.past.showback().capacity[0].unhealthy > 4)
        found = client.past.showback("job")
        adds_up(found)
        (row,) = found.rows
        assert (row.name, row.cost) == ("train", 2 * round(row.allocated / 3600, 9))
        told = json.loads(quorate(plane, "--by", "job", "-o", "json"))
        assert told["rows"][0]["allocated"] == str(row.allocated), "what is over does not change"
        (line,) = csv.DictReader(io.StringIO(quorate(plane, "--by", "job", "-o", "focus", "--per", "month")))
        assert Decimal(line["BilledCost"]) == 2 * Decimal(line["ConsumedQuantity"])
        assert "unhealthy" in quorate(plane)
