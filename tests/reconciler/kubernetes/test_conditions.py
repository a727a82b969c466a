"""What waiting pods say of themselves, word for word."""

from __future__ import annotations

import typing

import pytest

from reconciler.kubernetes.objects.cluster import KubernetesCluster
from reconciler.kubernetes.objects.wire import Pod, read
from reconciler.kubernetes.status.conditions import (
    MESSAGE_MAX,
    NODES_WOULD_DO,
    ConditionText,
    PodConditionUpdate,
    condition_updates,
    reason_of,
    spelt,
)
from solver.model.cluster import GpuType
from solver.model.quantities import Instant, MilliGpu
from solver.model.workload import JobName, QueueName
from solver.plan.estimates import EarliestStart, EndUnknown
from solver.plan.plan import Inadmissible, Runs, Starts, Verdict, Waits
from solver.plan.reasons import (
    AnyReason,
    CapacityReason,
    HeldReason,
    Outranked,
    Protected,
    QuotaChanges,
    QuotaMax,
    StrictOrder,
    Topology,
)
from solver.plan.refusals import AboveMax, UnknownName
from tests.reconciler.kubernetes.samples import Sent, cluster, node, pod
from tests.reconciler.kubernetes.test_constraints import away

H100, A100 = GpuType("H100-SXM5-80GB"), GpuType("A100-SXM4-80GB")
Q = QueueName("q")
FOUR, EIGHT, SIXTY_FOUR = MilliGpu.gpus(4), MilliGpu.gpus(8), MilliGpu.gpus(64)
FULL = QuotaMax(Q, H100, SIXTY_FOUR, SIXTY_FOUR, EIGHT, "policies/q.yaml:7")
LENT = JobName("vision.gang.lent")
SHORT = CapacityReason(H100, FOUR, EIGHT)
KEPT_THEN = QuotaMax(Q, H100, EIGHT, FOUR, EIGHT, kept_back=FOUR, with_gpus=FOUR)
SOON = EarliestStart(Instant.parse("2026-11-20T14:05:00Z"))
NOW = Instant.parse("2026-11-20T12:00:00Z")
GANG = {"quorate.dev/gang": "train", "quorate.dev/gang-size": "2"}


def told(pods: list[Sent], verdict: Verdict | None = None, nodes: int = 1) -> tuple[PodConditionUpdate, ...]:
    seen = cluster([node(f"n{number}") for number in range(nodes)], pods)
    return told_in(seen, pods, verdict)


def told_in(seen: KubernetesCluster, pods: list[Sent], verdict: Verdict | None) -> tuple[PodConditionUpdate, ...]:
    there = {found.key: found for found in (read(sent, Pod) for sent in pods)}
    return tuple(condition_updates(seen.gangs, [verdict] if verdict else [], there, NOW))


def said(pods: list[Sent], verdict: Verdict | None = None) -> ConditionText:
    (only,) = {one.said for one in told(pods, verdict)}
    return only


def waits(*reasons: AnyReason, job: str = "vision.pod.p") -> Waits:
    return Waits(JobName(job), Q, reasons, SOON)


def test_a_pod_that_waits_says_why_what_would_help_and_when() -> None:
    assert told([pod("p", 8)], waits(FULL)) == (
        PodConditionUpdate(
            JobName("vision.pod.p"),
            "vision",
            "p",
            "uid-of-p",
            "7",
            ConditionText(
                "QuotaMax",
                "waits: queue q holds 64 of max 64 H100-SXM5-80GB (policies/q.yaml:7); this job needs 8; would help: 8 "
                "H100-SXM5-80GB less held in queue q, or its max at 72; earliest start 2026-11-20T14:05:00Z, if what runs "
                "ends at its limit",
            ),
        ),
    )


def test_a_pod_says_what_protects_the_pods_that_would_make_room_for_it() -> None:
    until = Instant.parse("2026-11-20T14:05:00Z")
    reasons = (
        Protected("disruptionBudget", JobName("vision.gang.web")),
        Protected("minRuntime", LENT, "batch", until),
        SHORT,
    )
    told_of = told([pod("p", 8)], Waits(JobName("vision.pod.p"), Q, reasons))
    assert [update.said for update in told_of] == [
        ConditionText(
            "Unschedulable",
            "waits: evicting vision.gang.web would make room, and a PodDisruptionBudget does not allow it now; evicting "
            "vision.gang.lent would make room, and minRuntime of class batch protects it until 2026-11-20T14:05:00Z; needs 8 "
            "H100-SXM5-80GB, 4 free; would help: a PodDisruptionBudget that lets vision.gang.web go; a shorter minRuntime of "
            "class batch; 4 H100-SXM5-80GB more free",
        )
    ]


def test_all_pods_of_a_gang_say_the_same() -> None:
    pods = [pod("a", 8, annotations=GANG), pod("b", 8, annotations=GANG)]
    first, second = told(pods, Waits(JobName("vision.gang.train"), Q, (SHORT,), EndUnknown(2)))
    assert (first.name, second.name) == ("a", "b")
    assert first.said == second.said
    assert first.said == ConditionText(
        "Unschedulable",
        "waits: needs 8 H100-SXM5-80GB, 4 free; would help: 4 H100-SXM5-80GB more free; earliest start unknown: 2 jobs that "
        "hold what it could use have no time limit",
    )


def test_a_gang_that_is_not_whole_says_how_many_it_lacks() -> None:
    assert said([pod("a", annotations=GANG)]) == ConditionText(
        "WaitingForGang", "its gang is not whole: waiting for 1 of 2 pods"
    )


def test_a_gang_whose_pods_still_come_is_told_nothing_yet() -> None:
    assert told([pod("w0", annotations=GANG, created="2026-11-20T11:59:57Z")]) == ()
    assert len(told([pod("w0", annotations=GANG, created="2026-11-20T11:59:55Z")])) == 1


def test_what_is_refused_says_what_would_work() -> None:
    assert said([pod("p", annotations={"gpu-memory": "8192"})]) == ConditionText(
        "Refused",
        "refused: asks for GPUs in several ways. Keep one of nvidia.com/gpu, nvidia.com/mig-PROFILE, gpu-fraction and gpu-memory.",
    )


def test_what_can_never_run_says_what_would_fit() -> None:
    verdict = Inadmissible(JobName("vision.pod.p"), Q, (AboveMax(Q, H100, FOUR, EIGHT),))
    found = said([pod("p", 8)], verdict)
    assert found.reason == "Inadmissible"
    assert found.message.startswith("can't run under this policy here: ")
    assert found.message.endswith(". Up to 4 H100-SXM5-80GB would fit in queue q.")


def test_a_question_of_what_can_never_run_ends_without_a_full_stop() -> None:
    unknown = UnknownName("priority-class", ("trainin",), ("training",))
    found = said([pod("p", 8)], Inadmissible(JobName("vision.pod.p"), Q, (unknown,)))
    assert "; did you mean training? " in found.message


def test_pods_beyond_the_minimum_of_a_gang_that_runs_say_so() -> None:
    pods = [pod("a", on="n0", annotations=GANG), pod("b", on="n0", annotations=GANG), pod("c", annotations=GANG)]
    (only,) = told(pods, Runs(JobName("vision.gang.train"), Q))
    assert (only.name, only.said.reason) == ("c", "WaitsToGrow")
    assert only.said.message.startswith("its gang runs on 2 of 3 pods, which is enough for it")


@pytest.mark.parametrize(
    "pods",
    [
        [pod("p", on="n0")],
        [pod("p", metadata={"deletionTimestamp": "2026-11-20T09:00:00Z"})],
        [pod("p", spec={"schedulingGates": [{"name": "quota"}]})],
        [pod("p", phase="Failed")],
        [pod("p", spec={"schedulerName": "default-scheduler"})],
    ],
)
def test_nothing_is_said_of_pods_that_do_not_wait_for_us(pods: list[Sent]) -> None:
    assert told(pods, waits(FULL)) == ()


def test_nothing_is_said_of_what_starts_now_or_was_not_looked_at_yet() -> None:
    assert told([pod("p")], Starts(JobName("vision.pod.p"), Q, EIGHT, EIGHT)) == ()
    assert told([pod("p")]) == ()
    gang = [pod("a", on="n0", annotations={**GANG, "quorate.dev/gang-plan": "{}"}), pod("b", annotations=GANG)]
    assert told(gang, Runs(JobName("vision.gang.train"), Q)) == ()  # rigid: the rest is being bound


def test_what_starts_later_than_another_of_its_round_says_so() -> None:
    seen = cluster([node("n1")], pods := [pod("p")])
    there = {found.key: found for found in (read(sent, Pod) for sent in pods)}
    starts = Starts(JobName("vision.pod.p"), Q, EIGHT, EIGHT)
    postponed = {JobName("vision.pod.p"): "it is spread by x together with vision.pod.q, which starts first"}
    (only,) = condition_updates(seen.gangs, [starts], there, NOW, postponed)
    assert only.said == ("Postponed", f"waits for the next round: {postponed[JobName('vision.pod.p')]}")


def test_a_pod_that_others_keep_away_waits_and_is_not_refused() -> None:
    """Autoscalers add nodes for it, and the pods may go."""
    spec = away("kubernetes.io/hostname", app="web")
    pods = [pod("p", spec=spec), *(pod(f"web-{n}", on="n0", labels={"app": "web"}) for n in range(5))]
    why = "required anti-affinity to pods vision/web-0, vision/web-1, vision/web-2 and 2 more by kubernetes.io/hostname"
    assert said(pods) == ("Unschedulable", f"waits: {why} leaves no node of those that it may be on")


def test_a_pod_that_comes_for_one_that_is_gone_says_so_until_it_has_a_node() -> None:
    pods = [pod("a", on="n0", annotations=GANG), pod("b", annotations=GANG)]
    (only,) = told(pods, Runs(JobName("vision.gang.train"), Q))
    assert (only.name, only.said.reason) == ("b", "ReplacesLost")
    assert only.said.message.startswith("its gang has 1 of 2 pods on nodes, and this one comes for one that is gone")
    assert told(pods, Runs(JobName("vision.gang.train"), Q, grows=EIGHT)) == ()


def test_a_pod_whose_gang_is_ending_is_told_that_all_of_it_starts_anew() -> None:
    ends = pod("a", on="n0", annotations=GANG, metadata={"deletionTimestamp": "2026-11-20T08:00:00Z"})
    (only,) = told([ends, pod("b", annotations=GANG)], Runs(JobName("vision.gang.train"), Q))
    assert (only.name, only.said.reason) == ("b", "ReplacesLost")
    assert only.said.message.startswith("the pods that its gang has on nodes are ending: all of it starts anew")


def test_a_pod_that_was_made_anew_under_its_name_is_not_told() -> None:
    seen = cluster([node("n0")], [pod("p")])
    assert told_in(seen, [pod("p", metadata={"uid": "another"})], waits(FULL)) == ()


def test_what_is_not_followed_is_said_too() -> None:
    volumes = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}
    assert said([pod("p", 8, spec=volumes)], waits(SHORT)).message.endswith(
        "; not followed: where its volumes can be mounted is not looked at: if not everywhere, say so by nodeAffinity"
    )


def test_a_message_lists_some_reasons_and_is_never_too_long() -> None:
    reasons = [HeldReason(QueueName(f"queue-{number}"), "x" * 100) for number in range(12)]
    message = said([pod("p")], waits(*reasons)).message
    assert "queue queue-4 is on hold" in message
    assert "; 7 more; would help: " in message
    long = said([pod("p")], waits(*(HeldReason(QueueName("q"), "x" * 300) for _ in range(9)))).message
    assert len(long) == MESSAGE_MAX


@pytest.mark.parametrize(
    ("reasons", "reason"),
    [
        ((SHORT,), "Unschedulable"),
        ((Outranked((JobName("other"),)), SHORT), "Unschedulable"),
        ((Topology("rack", EIGHT, "r1", FOUR),), "Unschedulable"),
        ((FULL, SHORT), "QuotaMax"),
        ((FULL, CapacityReason(A100, FOUR, EIGHT)), "Unschedulable"),  # more A100s would do
        ((SHORT, KEPT_THEN), "Capacity"),  # nodes that came would be kept back
        ((StrictOrder(Q, "fifo", JobName("other")), SHORT), "StrictOrder"),
        ((HeldReason(Q),), "Held"),
    ],
)
def test_unschedulable_is_said_only_where_more_nodes_would_do(reasons: tuple[AnyReason, ...], reason: str) -> None:
    """Autoscalers add nodes for such pods: for one that a quota holds back they would stand idle."""
    assert reason_of(reasons) == reason


def test_each_reason_is_of_one_of_the_two_kinds() -> None:
    """A new reason has to be looked at: would more nodes do?"""
    of_policy = {
        "QuotaMax", "QuotaChanges",
        "StrictOrder", "Held", "AwaitsRelease", "BeyondGuarantee", "FallbackLater", "RoundCutShort", "MigGeometry",
    }  # fmt: skip
    never = {
        "UnknownName",
        "ClassNotAllowed",
        "NamespaceNotAllowed",
        "NotDivided",
        "GpuTooSmall",
        "MigHasNoPeers",
        "AboveMax",
        "NeverFits",
    }
    every = {spelt(kind.__struct_config__.tag) for kind in typing.get_args(AnyReason)}
    assert {spelt(kind.__struct_config__.tag) for kind in NODES_WOULD_DO} == every - of_policy - never


@pytest.mark.parametrize(("refused", "said"), [(False, "Unschedulable"), (True, "QuotaChanges")])
def test_what_a_quota_is_to_be_keeps_no_autoscaler_away_unless_the_job_is_refused_until_then(
    refused: bool, said: str
) -> None:
    h100 = GpuType("H100")
    room = CapacityReason(h100, MilliGpu(0), MilliGpu(8_000))
    later = QuotaChanges(QueueName("q"), h100, Instant(0), "guaranteed", MilliGpu(0), MilliGpu(8_000), refused=refused)
    assert reason_of((later, room) if refused else (room, later)) == said
