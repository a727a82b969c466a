"""What holds of any objects: their order says nothing, pods are in one gang each, gangs add up, rounds can decide about them."""

from __future__ import annotations

import random
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from reconciler.kubernetes.objects.jobs import PodGang
from solver.model.quantities import Instant, MilliGpu
from solver.model.snapshot import snapshot_of
from tests.drawn import worlds
from tests.reconciler.kubernetes.samples import Sent, cluster, node, pod

PODS = st.fixed_dictionaries(
    {
        "gang": st.sampled_from(["", "a", "b"]),
        "source": st.sampled_from(
            ["quorate.dev/gang", "kueue.x-k8s.io/pod-group-name", "batch.kubernetes.io/job-name"]
        ),
        "size": st.sampled_from(["", "1", "2", "3"]),
        "gpus": st.integers(0, 5),
        "cpu": st.sampled_from(["1", "100m", "64", "many"]),
        "on": st.sampled_from(["", "", "n1", "n2", "gone"]),
        "phase": st.sampled_from(["Pending", "Running", "Succeeded", "Failed"]),
        "scheduler": st.sampled_from(["quorate", "quorate", "quorate", "default-scheduler"]),
        "devices": st.sampled_from(["", "", "n1/0", "n2/1,n2/2", "nonsense"]),
        "queue": st.sampled_from(["q", "q", "q", ""]),
        "apart": st.booleans(),
    }
)
APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"apart": "yes"}}}
        ]
    }
}


def sent(number: int, drawn: dict[str, Any]) -> Sent:
    labels = {"quorate.dev/queue": drawn["queue"], "apart": "yes" if drawn["apart"] else "no"}
    labels |= {drawn["source"]: drawn["gang"]} if drawn["gang"] else {}
    written = {"quorate.dev/gang-size": drawn["size"], "quorate.dev/devices": drawn["devices"]}
    return pod(
        f"p{number}",
        gpus=drawn["gpus"],
        on=drawn["on"],
        labels=labels,
        phase=drawn["phase"],
        annotations={key: value for key, value in written.items() if value},
        requests={"cpu": drawn["cpu"]},
        spec={"schedulerName": drawn["scheduler"], **({"affinity": APART} if drawn["apart"] else {})},
    )


NODES = [node("n1"), node("n2", labels={"nvidia.com/gpu.clique": "u.1"}), node("n3", gpus=0)]


@worlds(100)
@given(st.lists(PODS, max_size=8), st.randoms(use_true_random=False))
def test_the_order_of_objects_says_nothing(drawn: list[dict[str, Any]], chance: random.Random) -> None:
    pods = [sent(number, one) for number, one in enumerate(drawn)]
    mixed, nodes = list(pods), list(NODES)
    chance.shuffle(mixed)
    chance.shuffle(nodes)
    assert cluster(nodes, mixed) == cluster(NODES, pods)


@worlds(150)
@given(st.lists(PODS, max_size=8))
def test_every_pod_that_lives_is_in_one_gang_and_gangs_add_up(drawn: list[dict[str, Any]]) -> None:
    pods = [sent(number, one) for number, one in enumerate(drawn)]
    seen = cluster(NODES, pods)
    ours = [one for one in pods if one["spec"]["schedulerName"] == "quorate"]
    live = {one["metadata"]["name"] for one in ours if one["status"]["phase"] in ("Pending", "Running")}
    assert sorted(member.name for gang in seen.gangs for member in gang.members) == sorted(live)
    assert len({gang.name for gang in seen.gangs}) == len(seen.gangs)
    gpus = {one["metadata"]["name"]: drawn[number]["gpus"] for number, one in enumerate(pods)}
    for gang in seen.gangs:
        assert (gang.job is None) <= bool(gang.refusals or gang.missing), "a gang is asked about, or it is said why not"
        if gang.job is not None:
            assert gang.job.spec.gpus == MilliGpu.gpus(sum(gpus[member.name] for member in gang.members))
            _members_are_the_tasks(gang)


def _members_are_the_tasks(gang: PodGang) -> None:
    assert gang.job is not None
    tasks = [(group.name, index) for group in gang.job.spec.task_groups for index in range(group.replicas)]
    assert [(member.group, member.task_index) for member in gang.members] == tasks
    assert len(gang.job.placement) == gang.bound


@worlds(100)
@given(st.lists(PODS, max_size=8))
def test_no_device_has_two_owners_and_none_is_given_away_that_is_used(drawn: list[dict[str, Any]]) -> None:
    pods = [sent(number, one) for number, one in enumerate(drawn)]
    seen = cluster(NODES, pods)
    held = [device for job in seen.jobs for task in job.placement for device in task.devices]
    assert len(held) == len(set(held))
    for known in seen.nodes[:2]:
        asked = sum(
            one["gpus"]
            for one in drawn
            if one["on"] == known.name and one["phase"] in ("Pending", "Running") and one["cpu"] != "many"
        )
        free = [gpu for gpu in known.gpus if gpu.healthy and gpu.id not in held]
        assert len(free) == max(0, 8 - asked)
    assert snapshot_of(Instant(0), seen.nodes, seen.jobs, node_sets=seen.node_sets).digest
    assert msgspec.json.encode([gang.name for gang in seen.gangs])
