"""What follows from gangs that were begun: by the facts alone, in one order, whatever order they came in."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import msgspec
import pytest

from reconciler.kubernetes.binder.journal import (
    GangBinding,
    PodBinding,
    StartJournal,
    hold_annotations,
    journal_of,
    written,
)
from reconciler.kubernetes.binder.partial_starts import (
    AGAIN_S,
    ROLL_FORWARD_S,
    BindableNodes,
    BoundPod,
    PartialStart,
    ReleasePods,
    StartKey,
    mark_of,
    partial_start,
    start_of,
)
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.pod_view import view_of
from reconciler.kubernetes.objects.wire import KubeContainer, KubeNode, Meta, NodeSpec, Pod, PodSpec, PodStatus, Taint
from solver.model.cluster import DeviceId, NodeName
from solver.model.quantities import Instant
from solver.model.workload import JobName

BEGUN = Instant(1_800_000_000_000)
SOON = BEGUN.after(int(AGAIN_S * 1000))
LATE = BEGUN.after(int(ROLL_FORWARD_S * 1000))
NODES = {name: KubeNode(Meta(name, labels={"disk": "nvme"})) for name in ("n0", "n1", "n2")}
GROUND = BindableNodes(NODES)


def journal(job: str = "ns.gang.g", attempt: int = 1, prefix: str = "g") -> StartJournal:
    pods = tuple(
        PodBinding("ns", f"{prefix}-{number}", f"{prefix}{number}", "1", NodeName(f"n{number}"), (DeviceId(f"n{number}/0"),))
        for number in range(3)
    )  # fmt: skip
    return journal_of(GangBinding(JobName(job), attempt, pods), BEGUN)


def pod_of(
    plan: StartJournal, number: int, *, bound: bool = True, uid: str = "", node: str = "", deleted: bool = False, phase: str = ""
) -> Pod:  # fmt: skip
    binding = plan.pods[number]
    notes = hold_annotations(binding, plan) if bound else {}
    if bound and number == 0:
        notes[names.GANG_PLAN] = written(plan)
    meta = Meta(
        binding.name, "ns", uid or binding.uid, "7", annotations=notes,
        deletion_timestamp="2027-01-15T08:00:09Z" if deleted else None,
    )  # fmt: skip
    spec = PodSpec(
        (KubeContainer("main"),), node_name=(node or binding.node) if bound else "", scheduler_name="quorate"
    )
    return Pod(meta, spec, PodStatus(phase or ("Running" if bound else "Pending")))


def decided(pods: Sequence[Pod], now: Instant = SOON, remembered: Sequence[StartJournal] = ()) -> PartialStart:
    """The same in any order."""
    answers = {
        partial_start(view_of(Random(seed).sample(pods, len(pods))), now, GROUND, remembered) for seed in range(3)
    }
    (answer,) = answers
    return answer


def test_nothing_is_done_where_no_gang_was_begun() -> None:
    assert decided([pod_of(journal(), number, bound=False) for number in range(3)], LATE) == PartialStart()
    assert decided([pod_of(journal(), number) for number in (1, 2)], LATE) == PartialStart()


def test_a_whole_gang_needs_its_journal_no_more_whenever_it_became_so() -> None:
    plan = journal()
    pods = [pod_of(plan, 0), pod_of(plan, 1, uid="made anew"), pod_of(plan, 2, phase="Succeeded")]
    for now in (BEGUN, SOON, LATE):
        found = decided(pods, now)
        assert found == PartialStart(whole=found.whole)
        (whole,) = found.whole
        assert (whole.start, whole.pod) == (start_of(plan), ("ns", "g-0", "g0"))


def test_what_is_missing_is_sent_again_as_it_is_now_once_a_watch_would_show_it() -> None:
    plan = journal()
    pods = [pod_of(plan, 0), pod_of(plan, 1, bound=False, uid="made anew"), pod_of(plan, 2, bound=False)]
    assert decided(pods, SOON.after(-1)) == PartialStart()
    (again,) = decided(pods).again
    assert again.journal == plan
    assert [(pod.name, pod.uid, pod.resource_version, pod.node, pod.devices) for pod in again.pods] == [
        ("g-1", "made anew", "7", "n1", ("n1/0",)),
        ("g-2", "g2", "7", "n2", ("n2/0",)),
    ]


def test_a_pod_that_is_gone_is_waited_for_until_the_time_is_over() -> None:
    plan = journal()
    pods = [pod_of(plan, 0), pod_of(plan, 1), pod_of(plan, 2, deleted=True)]
    assert decided(pods[:2], LATE.after(-1)) == decided(pods, LATE.after(-1)) == PartialStart()
    for there in (pods, pods[:2]):
        (release,) = decided(there, LATE).release
        assert release.pods == (("ns", "g-0", "g0"), ("ns", "g-1", "g1"))
        assert release.why == "1 of 3 pods not bound 30 s after the first, such as g-2"
        assert not release.marked


def test_what_can_never_be_whole_is_released_at_once() -> None:
    plan = journal()
    taken = [pod_of(plan, 0), pod_of(plan, 1, node="other"), pod_of(plan, 2, bound=False)]
    (release,) = decided(taken, BEGUN).release
    assert release.why == "the pod g-1 was bound otherwise by others"
    assert [pod.name for pod in release.pods] == ["g-0", "g-1"]
    waiting = [pod_of(plan, 0), pod_of(plan, 1), pod_of(plan, 2, bound=False)]
    (release,) = partial_start(
        view_of(waiting), BEGUN, BindableNodes({name: NODES[name] for name in ("n0", "n1")})
    ).release
    assert release.why == "the node n2 is gone, which the pod g-2 was to have"


def test_a_pod_that_was_made_anew_is_not_bound_where_it_may_not_be() -> None:
    """What made it may have been changed meanwhile, and the plan was for the pod before it."""
    plan = journal()
    anew = pod_of(plan, 2, bound=False, uid="made anew")
    tape = Pod(anew.metadata, msgspec.structs.replace(anew.spec, node_selector={"disk": "tape"}), anew.status)
    nvme = Pod(anew.metadata, msgspec.structs.replace(anew.spec, node_selector={"disk": "nvme"}), anew.status)
    there = [pod_of(plan, 0), pod_of(plan, 1)]
    (again,) = decided([*there, nvme]).again
    assert [pod.uid for pod in again.pods] == ["made anew"]
    found = decided([*there, tape])
    (release,) = found.release
    assert release.why == "the pod g-2 may not be on the node n2, which it was to have"
    assert ([pod.name for pod in release.pods], found.again) == (["g-0", "g-1"], ())
    tainted = KubeNode(Meta("n2"), NodeSpec(taints=(Taint("theirs", effect="NoSchedule"),)))
    assert (
        partial_start(view_of([*there, anew]), SOON, BindableNodes({**NODES, "n2": tainted})).release == found.release
    )
    refused = BindableNodes(NODES, frozenset({("ns", "g-0"), ("ns", "g-1"), ("ns", "g-2")}))
    assert partial_start(view_of([*there, anew]), SOON, refused).release == found.release
    waits = pod_of(plan, 2, bound=False)
    assert partial_start(view_of([*there, waits]), SOON, refused).again, "it is the one that the plan was made for"


def test_a_pod_that_was_made_anew_is_not_bound_before_what_it_needs_is_there() -> None:
    """Its gates are to go, its claims to have volumes and devices: what the pod before it had is not there for it."""
    plan = journal()
    unready = BindableNodes(NODES, unready=frozenset({("ns", "g-0"), ("ns", "g-1"), ("ns", "g-2")}))
    there = [pod_of(plan, 0), pod_of(plan, 1)]
    anew = view_of([*there, pod_of(plan, 2, bound=False, uid="made anew")])
    assert partial_start(anew, SOON, unready) == PartialStart()
    (release,) = partial_start(anew, LATE, unready).release
    assert release.why == "1 of 3 pods not bound 30 s after the first, such as g-2"
    assert partial_start(anew, SOON, GROUND).again
    waits = view_of([*there, pod_of(plan, 2, bound=False)])
    assert partial_start(waits, SOON, unready).again, "what the plan was made for was ready when that was made"


def test_a_release_that_was_begun_goes_on_whoever_leads_also_where_the_journal_is_gone() -> None:
    plan = journal()
    why = ReleasePods(plan.job, plan.attempt, (), frozenset(), "because")
    mark = {names.RELEASE: mark_of(why)}
    pods = [pod_of(plan, 0), with_notes(pod_of(plan, 1), mark), pod_of(plan, 2, bound=False)]
    (release,) = decided(pods, BEGUN).release
    assert release.why == "its release was begun"
    assert ([pod.uid for pod in release.pods], release.marked) == (["g0", "g1"], frozenset({"g1"}))
    (alone,) = decided(pods[1:], BEGUN).release
    assert alone == why._replace(pods=(BoundPod("ns", "g-1", "g1"),), marked=frozenset({"g1"}))
    leaving = pod_of(plan, 1, deleted=True)
    assert decided([with_notes(leaving, mark), pods[2]], LATE) == PartialStart()


def with_notes(pod: Pod, notes: dict[str, str]) -> Pod:
    meta = pod.metadata
    changed = Meta(
        meta.name, meta.namespace, meta.uid, meta.resource_version,
        annotations={**meta.annotations, **notes}, deletion_timestamp=meta.deletion_timestamp,
    )  # fmt: skip
    return Pod(changed, pod.spec, pod.status)


def test_a_start_that_is_remembered_outlives_the_pod_with_its_journal() -> None:
    plan = journal()
    pods = [pod_of(plan, 0, bound=False, uid="made anew"), pod_of(plan, 1), pod_of(plan, 2, bound=False)]
    assert decided(pods, SOON) == PartialStart()
    (again,) = decided(pods, SOON, [plan]).again
    assert [pod.uid for pod in again.pods] == ["made anew", "g2"]
    (release,) = decided(pods, LATE, [plan]).release
    assert [pod.uid for pod in release.pods] == ["g1"]


def test_a_remembered_start_of_which_nothing_is_bound_is_to_be_forgotten() -> None:
    plan = journal()
    pods = [pod_of(plan, number, bound=False) for number in range(3)]
    assert decided(pods, LATE, [plan]) == PartialStart(nothing=(start_of(plan),))
    assert partial_start(view_of([]), LATE, GROUND, [plan]) == PartialStart(nothing=(start_of(plan),))


def test_what_is_being_sent_is_left_alone() -> None:
    plan = journal()
    pods = [pod_of(plan, 0), pod_of(plan, 1), pod_of(plan, 2, bound=False)]
    assert partial_start(view_of(pods), LATE, GROUND, underway={start_of(plan)}) == PartialStart()


def test_what_was_asked_to_leave_meanwhile_is_neither_finished_nor_released() -> None:
    plan = journal()
    pods = [pod_of(plan, 0), with_notes(pod_of(plan, 1), {names.EVICT: "{}"}), pod_of(plan, 2, bound=False)]
    assert decided(pods, SOON) == decided(pods, LATE) == PartialStart()


def test_many_are_decided_in_the_order_of_their_jobs() -> None:
    plans = [journal(f"ns.gang.{name}", prefix=name) for name in "abcd"]
    pods = [pod_of(plan, number) for plan in plans for number in (0, 1)]
    assert [release.job for release in decided(pods, LATE).release] == [plan.job for plan in plans]


@pytest.mark.parametrize(("key", "value"), [(names.GANG_PLAN, "nonsense"), (names.RELEASE, "{}")])
def test_what_others_wrote_is_said_and_deletes_nothing(key: str, value: str) -> None:
    pod = with_notes(pod_of(journal(), 1), {key: value})
    found = decided([pod], LATE)
    assert found == PartialStart(unreadable=found.unreadable)
    assert found.unreadable[0].pod == ("ns", "g-1")


def test_a_journal_on_another_pod_than_its_first_is_not_believed() -> None:
    plan = journal()
    copied = with_notes(pod_of(plan, 1), {names.GANG_PLAN: written(plan)})
    (unreadable,) = decided([copied], LATE).unreadable
    assert unreadable.why == "quorate.dev/gang-plan: is that of the pod g-0"
    assert StartKey(plan.job, 1, ("ns", "g-0")) == start_of(plan)
