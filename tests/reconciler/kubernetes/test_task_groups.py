"""Task groups of YuniKorn, and Spark: what can be a gang is one, and the rest is told at once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from reconciler.kubernetes.objects.jobs import PodGang
from tests.reconciler.kubernetes.rounds import placed
from tests.reconciler.kubernetes.samples import Sent, cluster, codes, node, pod, the_gang

NODES = [node("n1"), node("n2")]
UNFOLLOWED = "its task groups of YuniKorn are not followed: nothing is kept free for pods that are not there yet"


def groups(*named: tuple[str, int]) -> str:
    return json.dumps([{"name": name, "minMember": members, "minResource": {"cpu": 1}} for name, members in named])


def member(number: int, of: str = "train", defined: str = groups(("train", 2)), **said: str) -> Sent:
    notes = {"yunikorn.apache.org/task-group-name": of, "yunikorn.apache.org/task-groups": defined}
    notes |= {f"yunikorn.apache.org/{key}": value for key, value in said.items()}
    return pod(f"p-{number}", labels={"applicationId": "app-1"}, annotations={k: v for k, v in notes.items() if v})


def the_only(*pods: Sent) -> PodGang:
    return the_gang(cluster(NODES, pods))


def test_members_of_the_only_task_group_are_a_gang() -> None:
    early = the_only(member(0))
    assert (early.name, str(early.missing)) == ("vision.yunikorn.app-1", "waiting for 1 of 2 pods")
    whole = the_only(member(0), member(1))
    assert whole.job is not None
    assert (whole.refusals, whole.remarks) == ((), ())
    more = the_only(*map(member, range(3)))
    assert more.job is not None
    assert [(group.replicas, group.least) for group in more.job.spec.task_groups] == [(3, 2)]


def test_it_goes_before_what_made_the_pods() -> None:
    pods = [member(number) for number in range(2)]
    for sent in pods:
        sent["metadata"]["labels"] |= {"batch.kubernetes.io/job-name": "j"}
    assert the_only(*pods).name == "vision.yunikorn.app-1"


SEVERAL = groups(("driver", 1), ("executor", 4))
OTHERWISE: dict[str, Sent] = {
    "of several groups": member(0, "driver", SEVERAL),
    "in none": member(0, "", groups(("executor", 4))),
    "of another": member(0, "driver", groups(("executor", 4))),
    "not defined on it": member(0, "executor", ""),
    "unreadable": member(0, "driver", "[{"),
    "of nobody": member(0, "train", groups(("train", 0))),
}


@pytest.mark.parametrize("why", OTHERWISE)
def test_task_groups_that_are_no_gang_are_told_and_the_pod_starts(why: str) -> None:
    """Soft is what YuniKorn assumes: an application runs without what was to be kept for it."""
    gang = the_only(OTHERWISE[why])
    assert (gang.name, codes(gang)) == ("vision.pod.p-0", [])
    assert [(remark.code, str(remark)) for remark in gang.remarks] == [("task-groups", UNFOLLOWED)]
    assert gang.job is not None


@pytest.mark.parametrize(
    "style", ["gangSchedulingStyle=Hard", "placeholderTimeoutInSeconds=30 gangSchedulingStyle=Hard"]
)
def test_an_application_that_may_not_start_without_is_refused_at_once(style: str) -> None:
    gang = the_only(member(0, "driver", SEVERAL, schedulingPolicyParameters=style))
    assert codes(gang) == ["task-groups"]
    assert gang.job is None
    soft = the_only(member(0, "driver", SEVERAL, schedulingPolicyParameters="gangSchedulingStyle=Soft"))
    assert (codes(soft), len(soft.remarks)) == ([], 1)


def test_pods_that_are_named_a_gang_are_that_whatever_yunikorn_would_do() -> None:
    sent = member(0, "driver", SEVERAL, schedulingPolicyParameters="gangSchedulingStyle=Hard")
    sent["metadata"]["annotations"] |= {"quorate.dev/gang": "g", "quorate.dev/gang-size": "1"}
    gang = the_only(sent)
    assert (gang.name, gang.refusals, gang.remarks) == ("vision.gang.g", (), ())


def of_spark(role: str, number: int, **said: Any) -> Sent:
    """As Spark on Kubernetes labels its pods."""
    labels = {"spark-role": role, "spark-app-selector": "spark-1", "spark-app-name": "etl"}
    labels |= {"spark-exec-id": str(number)} if role == "executor" else {}
    return pod(f"etl-{role}-{number}", labels=labels, **said)


def test_a_driver_of_spark_waits_for_no_executor_and_executors_for_no_other() -> None:
    driver = cluster(NODES, [of_spark("driver", 0)])
    assert placed(driver) == {"vision.pod.etl-driver-0": ["n1"]}
    executors = [of_spark("executor", number, gpus=8) for number in range(3)]
    seen = cluster(NODES, [of_spark("driver", 0, gpus=0, on="n1"), *executors])
    assert len(placed(seen)) == 2, "two of three find room, and begin"
    assert [(codes(gang), gang.remarks) for gang in seen.gangs] == [([], ())] * 4
