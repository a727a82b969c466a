"""The life of a training run, with real processes: evicted and back, one of its tasks killed, its newest checkpoint damaged."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest

from reconciler.client import Client
from solver.model.quantities import Cpu, Duration, Memory
from solver.model.shape import Shape
from solver.model.workload import Checkpoint, JobName, JobSpec, QueueName, TaskGroup
from tests.e2e import training
from tests.e2e.control_plane import ControlPlane, until
from tests.reconciler.gitops.source.origin import Origin

RUN = JobName("training")
STEPS = 240
PACE_S = 0.02


def policy(storage: Path) -> dict[str, str]:
    """Eight GPUs; serving is guaranteed four of them, and training borrows what is idle."""
    head = "apiVersion: quorate.dev/v1\nkind: "
    evictions = "evictions: {grace: 20s, backOff: 0s, restartCost: 0s}"
    return {
        "policies/serving.yaml": f"{head}Queue\nmetadata: {{name: serving}}\n"
        "spec: {quota: [{gpuType: H100, guaranteed: 4}]}\n",
        "policies/queue.yaml": f"{head}Queue\nmetadata: {{name: team}}\nspec: {{quota: [{{gpuType: H100, guaranteed: 0}}]}}\n",
        "policies/classes.yaml": f"{head}PriorityClass\nmetadata: {{name: serving}}\n"
        "spec: {value: 1000, sloClass: latency-critical, preemptible: false}\n---\n"
        f"{head}PriorityClass\nmetadata: {{name: training}}\nspec: {{value: 0, protection: {{minRuntime: 0s, coolDown: 0s}}}}\n",
        "policies/scheduling.yaml": f"{head}SchedulingPolicy\nmetadata: {{name: cluster}}\n"
        f"spec: {{defaultPriorityClass: training, {evictions}}}\n",
        "policies/checkpoints.yaml": f"{head}CheckpointPolicy\nmetadata: {{name: default}}\n"
        f"spec: {{storage: 'file://{storage}'}}\n",
        "policies/retries.yaml": f"{head}RetryPolicy\nmetadata: {{name: training}}\n"
        "spec: {maxRetries: 3, backoff: {initial: 1s, max: 2s}}\n",
    }


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    made = tmp_path / "storage"
    made.mkdir()
    return made


@pytest.fixture
def running(plane: ControlPlane, origin: Origin, storage: Path) -> Iterator[Client]:
    origin.commit(policy(storage))
    plane.start().until_ready()
    with plane.client() as client:
        yield client


@pytest.fixture
def enough(tmp_path: Path) -> Path:
    """A file that is not there yet: the run goes on until it is, however slowly everybody else does what is to happen before."""
    return tmp_path / "enough"


def spec(interval_s: float | None, enough: Path, least: int = 6) -> JobSpec:
    command = (sys.executable, training.__file__, str(STEPS), str(PACE_S), str(enough))
    group = TaskGroup("worker", 6, Shape(gpus=1, cpu=Cpu(1), memory=Memory(2**28)), min_replicas=least)
    saves = None if interval_s is None else Checkpoint(Duration(int(interval_s * 1_000)), Duration(20_000))
    return JobSpec(
        QueueName("team"),
        (group,),
        checkpoint=saves,
        command=command,
        priority_class="training",
        retry_policy="training",
    )


def serve(client: Client) -> None:
    """A latency-critical job of four GPUs comes, and is gone again soon."""
    group = TaskGroup("server", 1, Shape(gpus=4, cpu=Cpu(1), memory=Memory(2**26)))
    served = JobSpec(QueueName("serving"), (group,), priority_class="serving", command=("sleep", "1"))
    client.submit(JobName("serving"), served)


def step_of(client: Client) -> int:
    steps = [line.progress.step for line in client.top().items if line.name == RUN and line.progress is not None]
    return max(steps, default=0)


def causes(client: Client, kind: str) -> list[str]:
    return [event.cause for event in client.events(RUN, limit=1_000).items if event.kind == kind]


def ends_well(client: Client, attempt: int, enough: Path) -> None:
    """Let it end, in this attempt, with what an undisturbed run comes to."""
    enough.touch()
    until("it has ended", lambda: client.job(RUN).outcome)
    outcome = client.job(RUN).outcome
    assert outcome is not None
    assert outcome.state == "succeeded", outcome.message
    assert client.job(RUN).attempt == attempt
    ((weight, steps),) = re.findall(r"result (\d+) of (\d+) steps", client.log(RUN, attempt=attempt).decode())
    assert int(weight) == training.trained(int(steps))


def lost_gpu_s(client: Client) -> float:
    """What the eviction has thrown away."""
    (released,) = [cause for cause in causes(client, "released") if "GPU-seconds" in cause and "attempt 1 " in cause]
    found = re.search(r"([\d.]+) GPU-seconds", released)
    assert found is not None
    return float(found[1])


def evicted_after_a_while(client: Client, job: JobSpec, enough: Path) -> float:
    """Run it, evict it for a latency-critical job, let it come back and end; returns what was lost."""
    client.submit(RUN, job)
    until("it trains", lambda: step_of(client) > STEPS // 4)
    serve(client)
    until("it is back", lambda: client.job(RUN).attempt == 2)
    assert client.job("serving").state == "succeeded"
    ends_well(client, 2, enough)
    return lost_gpu_s(client)


@pytest.mark.thorough
def test_evicted_for_a_latency_critical_job_it_saves_its_work_and_comes_to_the_same_result(
    running: Client, enough: Path
) -> None:
    lost = evicted_after_a_while(running, spec(interval_s=3_600, enough=enough), enough)
    states = [event.state for event in running.events(RUN, limit=1_000).items if event.state]
    path = [state for place, state in enumerate(states) if not place or states[place - 1] != state]
    assert path == [
        "queued", "starting", "running", "checkpointing", "evicting", "queued", "starting", "running", "succeeded"
    ]  # fmt: skip
    (ends,) = causes(running, "ends")
    (saved,) = map(int, re.findall(r"it has saved step (\d+)", ends))
    assert saved > STEPS // 4
    assert causes(running, "resumes") == [f"going on from step {saved}"]
    assert f"going on from step {saved}" in running.log(RUN, attempt=2).decode()
    # Nothing is lost that was computed before the other came: six GPUs wait, some time after that, until all have ended.
    released_at = min(event.time for event in running.events(RUN, limit=1_000).items if event.kind == "released")
    assert lost <= 6 * (released_at - running.job("serving").submitted_at) / 1_000 + 0.1
    print(f"lost with a checkpoint: {lost} GPU-seconds")


@pytest.mark.long
def test_without_checkpoints_an_eviction_loses_everything(running: Client, enough: Path) -> None:
    lost = evicted_after_a_while(running, spec(interval_s=None, enough=enough), enough)
    assert "of which nothing is saved" in " ".join(causes(running, "released"))
    assert lost > 6 * PACE_S * STEPS / 4, "all that was computed until then, at least"
    print(f"lost without checkpoints: {lost} GPU-seconds")


@pytest.mark.long
def test_one_of_its_processes_is_killed_and_it_goes_on_with_five_until_a_sixth_joins(
    running: Client, enough: Path
) -> None:
    running.submit(RUN, spec(interval_s=0.5, enough=enough, least=4))
    until("it trains", lambda: step_of(running) > 20)
    log = running.log(RUN, index=3, attempt=1).decode()
    (pid,) = map(int, re.findall(r"process (\d+)", log))
    os.kill(pid, signal.SIGKILL)
    until("the others go on", lambda: len(running.job(RUN).tasks) == 5)
    until("another joins", lambda: len(running.job(RUN).tasks) == 6 and causes(running, "grown"))
    ends_well(running, 1, enough)
    kinds = [event.kind for event in running.events(RUN, limit=1_000).items]
    assert [kind for kind in kinds if kind in ("outlived", "shrunk", "grown")] == ["outlived", "shrunk", "grown"]


@pytest.mark.long
def test_a_damaged_newest_checkpoint_is_passed_over_and_that_is_said(running: Client, enough: Path) -> None:
    running.submit(RUN, spec(interval_s=3_600, enough=enough))
    for least in (STEPS // 6, STEPS // 3):
        until("it trains", partial(has_come_to, running, least))
        running.suspend(RUN)
        until("it is suspended", lambda: running.job(RUN).state == "suspended")
        if least == STEPS // 6:
            running.resume(RUN)
    newest, before = running.checkpoints(RUN).items
    shard = Path(newest.url.removeprefix("file://")) / "worker.2" / "state"
    damaged = bytearray(shard.read_bytes())
    damaged[100] ^= 1
    shard.write_bytes(damaged)
    running.resume(RUN)
    ends_well(running, 3, enough)
    assert causes(running, "resumes") == [
        f"going on from step {before.step}",
        f"checkpoint of step {newest.step} is corrupt: shard state of worker.2 has another SHA-256; "
        f"going on from step {before.step}",
    ]


def has_come_to(client: Client, step: int) -> bool:
    return step_of(client) >= step


@pytest.mark.long
def test_out_of_memory_is_told_with_advice(running: Client, enough: Path) -> None:
    hog = msgspec.structs.replace(
        spec(None, enough), command=(sys.executable, "-c", "held = bytearray(600 * 2**20); import time; time.sleep(60)")
    )
    running.submit(RUN, hog)
    until("it has ended", lambda: running.job(RUN).outcome)
    outcome = running.job(RUN).outcome
    assert outcome is not None
    assert outcome.state == "failed"
    assert "of 256Mi memory" in outcome.message
    assert re.search(r"Ask for `memory: \d+Mi` in group worker: 2 nodes can have that", outcome.message), (
        outcome.message
    )
