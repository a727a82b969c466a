"""A vcjob of Volcano whose pods are not made is told why, as long as that is so."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.kubernetes.objects.held_back import VolcanoJob
from reconciler.kubernetes.objects.wire import read
from reconciler.kubernetes.objects.world import ClusterModel
from reconciler.kubernetes.status.occurrences import Occurrence, Regarding, standing_occurrences


def a_vcjob(name: str = "train", scheduler: str = "quorate", **said: Any) -> VolcanoJob:
    sent = {
        "metadata": {"name": name, "namespace": "vision", "uid": f"uid-of-{name}", **said.get("metadata", {})},
        "spec": {"schedulerName": scheduler, "minAvailable": 2, "tasks": [{"name": "worker", "replicas": 2}]},
        "status": {"state": {"phase": said.get("phase", "Pending")}, "minAvailable": 2, **said.get("status", {})},
    }
    return read(sent, VolcanoJob)


def told(world: ClusterModel) -> list[Occurrence]:
    return list(standing_occurrences((), world.cluster()))


def test_what_waits_for_volcanos_scheduler_is_told_so_until_it_has_pods() -> None:
    world = ClusterModel()
    assert world.volcano_job(None, a_vcjob("other"))
    assert world.volcano_job(None, a_vcjob())
    first, second = told(world)
    assert (first.regarding.name, second.regarding) == (
        "other",
        Regarding("Job", "vision", "train", "uid-of-train", "batch.volcano.sh/v1alpha1"),
    )
    assert (second.reason, second.warning) == ("Waiting", False)
    assert "once its PodGroup is Inqueue, which Volcano's scheduler says and Quorate does not" in second.note
    assert not world.volcano_job(a_vcjob(), a_vcjob(status={"version": 1})), "no round looks at it for that"
    assert world.volcano_job(a_vcjob(), a_vcjob(status={"pending": 2}))
    assert [one.regarding.name for one in told(world)] == ["other"]
    assert world.volcano_job(a_vcjob("other"), None)
    assert told(world) == []


@pytest.mark.parametrize(
    "job",
    [
        a_vcjob(scheduler="volcano"),
        a_vcjob(phase="Completed"),
        a_vcjob(phase=""),
        a_vcjob(status={"running": 1}),
        a_vcjob(status={"succeeded": 1}),
        a_vcjob(metadata={"deletionTimestamp": "2026-11-20T10:00:00Z"}),
    ],
)
def test_no_other_is(job: VolcanoJob) -> None:
    world = ClusterModel()
    assert not world.volcano_job(None, job)
    assert told(world) == []
