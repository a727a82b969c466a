"""`quorate gpus`: a line for each GPU, and both utilisations by type, queue and class; what is not known is no number."""

from __future__ import annotations

import json

import pytest

from reconciler.api.server import ApiServer
from reconciler.model.gpu_use import GpuMinute, NodeMinute, UseFigures, UseSpread, record_of
from solver.model.cluster import DeviceId
from solver.model.quantities import Instant
from tests.contracts.simulated_worlds import NODES
from tests.reconciler.api.conftest import NOW, Site
from tests.reconciler.cli.conftest import Now, Quorate, on, submitted

GPUS = """\
GPU   GPU TYPE  NODE  HELD BY  ACTIVE  TENSOR  DRAM  MEMORY  SOURCE       AGE
n1/0  H100      n1    llama       50%     25%     -     80%  gpm          10s
n1/1  H100      n1    llama      100%       -   30%       -  utilisation  10s
n1/2  H100      n1                 0%       -     -       -  gpm          10s
n1/3  H100      n1                  -       -     -       -  -              -
"""
TYPES = """\
GPU TYPE  HEALTHY  ALLOCATED  ALLOCATED/HEALTHY  ACTIVE/ALLOCATED
H100            8          3                38%        75% of 2/3
"""
QUEUES = """\
QUEUE  GPU TYPE  ALLOCATED  ACTIVE/ALLOCATED
team   H100              3        75% of 2/3
"""
CLASSES = """\
CLASS      GPU TYPE  ALLOCATED  ACTIVE/ALLOCATED
(default)  H100              3        75% of 2/3
"""


def told(number: int, use: UseFigures) -> GpuMinute:
    return GpuMinute(DeviceId(f"n1/{number}"), f"GPU-{number}", record_of(use))


@pytest.fixture(autouse=True)
def two_jobs(site: Site, at_server: ApiServer, now: Now) -> None:
    submitted(site, "llama", gpus=2)
    site.bind("llama", on(NODES[0], 0, 1))
    submitted(site, "small")
    site.bind("small", on(NODES[1], 2))
    start = Instant(NOW // 60_000 * 60_000)
    now.instant = start.after(70_000)
    gpus = (
        told(0, UseFigures("gpm", 12, active=UseSpread(50.0), tensor=UseSpread(25.0), memory=UseSpread(80.0))),
        told(1, UseFigures("utilisation", 12, active=UseSpread(100.0), dram=UseSpread(30.0))),
        told(2, UseFigures("gpm", 12, active=UseSpread(0.0))),
    )
    site.minutes[NODES[0].name] = NodeMinute(start, gpus)


def test_each_gpu_has_a_line_and_what_is_not_known_is_no_number(quorate: Quorate) -> None:
    assert quorate("gpus", "--node", "n1") == (0, GPUS, "")


@pytest.mark.parametrize(("by", "expected"), [("type", TYPES), ("queue", QUEUES), ("class", CLASSES)])
def test_both_utilisations_stand_side_by_side(quorate: Quorate, by: str, expected: str) -> None:
    assert quorate("gpus", "--by", by) == (0, expected, "")


def test_what_is_left_out_is_said(quorate: Quorate) -> None:
    ran = quorate("gpus", "--limit", "3")
    assert len(ran.out.splitlines()) == 5
    assert ran.out.splitlines()[-1].startswith("and more than these 3")
    assert quorate("gpus", "--job", "gone") == (0, "no such GPUs\n", "")


def test_json_has_every_figure(quorate: Quorate) -> None:
    found = json.loads(quorate("gpus", "--job", "small", "-o", "json").out)
    assert [(gpu["gpu"], gpu["use"], gpu["held"]) for gpu in found["items"]] == [("n2/2", None, True)]
    assert found["types"] == [{"gpuType": "H100", "healthy": 8, "allocated": 3, "measured": 2, "active": 1.5}]


def test_top_shows_how_active_a_job_is(quorate: Quorate) -> None:
    lines = {line.split()[0]: line for line in quorate("top").out.splitlines()}
    assert "75%" in lines["llama"].split()
    assert "%" not in lines["small"]


def test_queues_show_how_active_they_are(quorate: Quorate) -> None:
    assert "75% of 2/3" in quorate("queues").out
