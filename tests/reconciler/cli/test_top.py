"""`quorate top`, in words and as data."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import msgspec
import pytest

from reconciler.api.server import ApiServer
from reconciler.api.top import TopLine
from reconciler.api.top_routes import line_of
from reconciler.api.views import job_viewer
from reconciler.cli import tables
from reconciler.cli.top import row_of
from reconciler.lifecycle.jobs.backend_reports import AttemptReport, BackendReports
from reconciler.protocols.backend import MemoryUse, Progress, TaskState, TaskStatus
from solver.model.cluster import GpuType, NodeName
from solver.model.quantities import Instant, Memory, MilliGpu
from solver.model.workload import JobName, QueueName
from solver.policy.policy import GpuPeak
from tests.contracts.simulated_worlds import NODES
from tests.reconciler.api.conftest import NOW, Site
from tests.reconciler.cli.conftest import Now, Quorate, on, submitted

SHOWN = """\
NAME   QUEUE  STATE     TASKS  GPUS  RUNNING FOR  STEP  STEPS/S      MEMORY  ACTIVE  MFU  IDLE FOR
llama  team   starting    2/2     4               1200      2.5  1.3Gi/64Gi
small  team   starting    0/1     1
"""
GIB = 2**30


def task(
    index: int,
    state: TaskState = "running",
    step: int | None = None,
    memory: MemoryUse | None = None,
    job: str = "llama",
) -> TaskStatus:
    said = None if step is None else Progress(step, 2.5, NOW)
    return TaskStatus(JobName(job), 1, "worker", index, NodeName("n1"), state, NOW, progress=said, memory=memory)


@pytest.fixture(autouse=True)
def two_jobs(site: Site, at_server: ApiServer, now: Now) -> None:
    submitted(site, "llama", gpus=2, replicas=2)
    first, second = on(NODES[0], 0, 1), on(NODES[1], 0, 1)
    site.bind("llama", first, msgspec.structs.replace(second, index=1))
    submitted(site, "small")
    site.bind("small", on(NODES[0], 2))
    submitted(site, "waits", gpus=4)
    some, more = MemoryUse(Memory(GIB), Memory(64 * GIB)), MemoryUse(Memory(1_395_864_371), Memory(64 * GIB))
    sight(site, task(0, step=1_207, memory=some), task(1, step=1_200, memory=more))


def sight(site: Site, *tasks: TaskStatus) -> None:
    site.sighted = BackendReports({}, {(JobName("llama"), 1): AttemptReport(tasks)})


def test_it_shows_what_holds_devices_and_how_far_it_is(quorate: Quorate) -> None:
    assert quorate("top") == (0, SHOWN, "")


def test_mfu_where_a_job_reports_its_operations(site: Site, now: Now, quorate: Quorate) -> None:
    now.instant = NOW.after(1_000)
    policy = site.policy
    records = msgspec.structs.replace(policy.scheduling.gpu_use, peaks=(GpuPeak(GpuType("H100"), 1_000.0),))
    scheduling = msgspec.structs.replace(policy.scheduling, gpu_use=records)
    site.policy = msgspec.structs.replace(policy, scheduling=scheduling)

    def reports(flops: float, tokens: float = 0.0) -> None:
        said = Progress(7, 1.0, NOW, flops, tokens)
        sight(site, msgspec.structs.replace(task(0), progress=said), task(1))

    reports(820e12, 12_300)
    assert quorate("top").out.splitlines()[1].split()[-1] == "41%"
    assert (
        "Reports    MFU 41.0 % of 2 PFLOP/s, 820 TFLOP/s on 2 GPUs, 12.3 ktokens/s" in quorate("describe", "llama").out
    )
    assert quorate("gpus", "--by", "queue").out.splitlines()[:2] == [
        "QUEUE  GPU TYPE  ALLOCATED  ACTIVE/ALLOCATED       MFU",
        "team   H100              5                 -  41% of 2",
    ]
    assert quorate("gpus", "--by", "type").out.splitlines()[1].endswith("  41% of 2")
    (line,) = json.loads(quorate("gpus", "-o", "json").out)["work"]
    assert (line["queue"], line["work"]["mfu"]) == ("team", 0.41)
    # More than there can be is a wrong report, and no MFU.
    reports(2_500e12)
    assert "MFU unknown: that is more than the 2 PFLOP/s that they can do" in quorate("describe", "llama").out
    assert "MFU" not in quorate("gpus", "--by", "queue").out


def test_as_data(quorate: Quorate) -> None:
    llama, small = json.loads(quorate("top", "-o", "json").out)["items"]
    assert (llama["name"], llama["gpus"], llama["running"]) == ("llama", 4, 2)
    assert llama["progress"]["step"] == 1_200
    assert llama["memory"]["peak"] == str(Memory(1_395_864_371))
    assert (small["progress"], small["memory"], small["activeAt"]) == (None, None, None)


def test_where_nothing_runs_it_says_so(quorate: Quorate, site: Site) -> None:
    for name in ("llama", "small"):
        site.store.ledger.release(site.epoch(), JobName(name), 1, NOW)
    assert quorate("top").out == "nothing runs\n"


def test_on_a_terminal_it_is_shown_anew_until_it_is_interrupted(
    quorate: Quorate, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second time llama has come further; then somebody has seen enough."""
    rests: list[float] = []

    def rest(seconds: float) -> None:
        rests.append(seconds)
        if len(rests) > 1:
            raise KeyboardInterrupt
        sight(site, task(0, step=1_300), task(1, step=1_300))

    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(tables, "time", SimpleNamespace(sleep=rest))
    ran = quorate("top")
    assert (ran.exit_code, rests) == (0, [2.0, 2.0])
    assert "1300" in ran.out


def test_tasks_that_ended_or_left_do_not_hold_a_job_back(site: Site) -> None:
    sight(site, task(0, step=9), task(1, "stopped", step=1), task(7, step=2))
    record = site.store.jobs.job(JobName("llama"))
    line = line_of(job_viewer(site.services())(record), site.sighted)
    assert line.progress is not None
    assert (line.progress.step, line.running, line.tasks) == (9, 1, 2)


def test_of_two_tasks_the_one_with_most_of_its_memory_is_shown(site: Site) -> None:
    tight, large = MemoryUse(Memory(9), Memory(10)), MemoryUse(Memory(500), Memory(1_000))
    sight(site, task(0, memory=large), task(1, memory=tight))
    record = site.store.jobs.job(JobName("llama"))
    assert line_of(job_viewer(site.services())(record), site.sighted).memory == tight


def test_what_nobody_knows_is_empty() -> None:
    line = TopLine(
        JobName("job"), QueueName("q"), "running", 1, 1, 1, MilliGpu(500), NOW, active_at=Instant(NOW - 90_000)
    )
    later = NOW.after(60_000)
    assert row_of(line, later) == ["job", "q", "running", "1/1", "0.5", "1m", "", "", "", "", "", "2m30s"]
