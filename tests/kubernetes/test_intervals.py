"""Who held which device when, by an audit log: what may be, what may not, and what nobody can know is never called wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hack.kubernetes.intervals import Entry, Intervals, entries_of

Meta = dict[str, Any]


def at(second: float) -> str:
    return f"2026-01-01T00:00:{second:09.6f}Z"


def entry(
    verb: str, what: str, name: str, second: float, *, code: int = 200, took: float = 0.01, **bodies: Any
) -> Entry:
    resource, _, subresource = what.partition("/")
    of = {"resource": resource, "subresource": subresource, "namespace": "ns", "name": name}
    return {
        "stage": "ResponseComplete",
        "verb": verb,
        "objectRef": of,
        "responseStatus": {"code": code},
        "requestReceivedTimestamp": at(second),
        "stageTimestamp": at(second + took),
        **bodies,
    }


def node(name: str) -> Entry:
    return entry("create", "nodes", name, 0, code=201)


def bound(
    pod: str, second: float, *devices: str, epoch: int = 1, code: int = 201, took: float = 0.01, share: str = ""
) -> Entry:
    notes = {"quorate.dev/devices": ",".join(devices), "quorate.dev/epoch": str(epoch)}
    notes |= {"quorate.dev/share": share} if share else {}
    meta = {"name": pod, "uid": f"uid-{pod}", "resourceVersion": "7", "annotations": notes}
    body = {"metadata": meta, "target": {"kind": "Node", "name": "n1"}}
    return entry("create", "pods/binding", pod, second, code=code, took=took, requestObject=body)


def deleted(pod: str, second: float, **meta: Any) -> Entry:
    return entry("delete", "pods", pod, second, responseObject={"metadata": meta})


def ended(pod: str, second: float, phase: str = "Succeeded") -> Entry:
    return entry("patch", "pods/status", pod, second, requestObject={"status": {"phase": phase}})


def kinds(*entries: Entry) -> list[str]:
    return [one.kind for one in Intervals().judged([node("n1"), *entries])]


def test_a_device_has_one_pod_at_a_time() -> None:
    assert kinds(bound("a", 1, "n1/0"), bound("b", 2, "n1/1")) == []
    assert kinds(bound("a", 1, "n1/0"), bound("b", 2, "n1/0")) == ["double-bound"]
    assert kinds(bound("a", 1, "n1/0", "n1/1"), bound("b", 2, "n1/1", "n1/2")) == ["double-bound"]


def test_a_binding_that_was_refused_is_none() -> None:
    assert kinds(bound("a", 1, "n1/0"), bound("b", 2, "n1/0", code=409)) == []


@pytest.mark.parametrize("end", [deleted, ended])
def test_a_device_is_free_once_its_pod_is_gone_or_has_ended(end: Any) -> None:
    assert kinds(bound("a", 1, "n1/0"), end("a", 2), bound("b", 3, "n1/0")) == []
    assert kinds(bound("a", 1, "n1/0"), bound("b", 2, "n1/0"), end("a", 3)) == ["double-bound"]


def test_a_pod_that_was_asked_to_leave_holds_its_device_until_it_has() -> None:
    asked = deleted("a", 2, deletionTimestamp=at(2), deletionGracePeriodSeconds=30)
    assert kinds(bound("a", 1, "n1/0"), asked, bound("b", 3, "n1/0")) == ["double-bound"]
    guarded = deleted("a", 2, deletionTimestamp=at(2), deletionGracePeriodSeconds=0, finalizers=["someone/else"])
    assert kinds(bound("a", 1, "n1/0"), guarded, bound("b", 3, "n1/0")) == ["double-bound"]


def test_a_pod_that_was_bound_while_it_was_being_taken_away_holds_nothing() -> None:
    """As a real API server has it: the deletion saw no node yet, and asked nobody for a while to leave."""
    gone = deleted("a", 1, uid="uid-a", deletionTimestamp=at(1), deletionGracePeriodSeconds=0)
    assert kinds(gone, bound("a", 1.001, "n1/0"), bound("b", 2, "n1/0")) == []
    assert kinds(gone, bound("a", 1.001, "n1/0"), bound("b", 2, "n1/0"), bound("c", 3, "n1/0")) == ["double-bound"]
    another = deleted("a", 1, uid="uid-of-one-before")
    assert kinds(another, bound("a", 2, "n1/0"), bound("b", 3, "n1/0")) == ["double-bound"]


def test_shares_of_a_device_add_up_to_no_more_than_it_is() -> None:
    fits = bound("a", 1, "n1/0", share="500m"), bound("b", 2, "n1/0", share="0.25"), bound("c", 3, "n1/0", share="0.25")
    assert kinds(*fits) == []
    assert kinds(*fits, bound("d", 4, "n1/0", share="0.25")) == ["double-bound"]


def test_a_pod_that_was_made_anew_is_another() -> None:
    assert kinds(bound("a", 1, "n1/0"), deleted("a", 2), bound("a", 3, "n1/0")) == []
    assert kinds(bound("a", 1, "n1/0"), bound("a", 3, "n1/1")) == ["bound-twice"]


def test_no_binding_of_an_older_epoch_comes_after_the_first_of_a_newer_one() -> None:
    assert kinds(bound("a", 1, epoch=1), bound("b", 2, epoch=2), bound("c", 3, epoch=2)) == []
    assert kinds(bound("a", 1, epoch=1), bound("b", 2, epoch=2), bound("c", 3, epoch=1)) == ["stale-accepted"]
    # It was received before the newer one was answered: nobody can say which was first.
    assert kinds(bound("b", 2, epoch=2, took=0.5), bound("c", 2.4, epoch=1)) == []


def test_a_binding_names_a_node_that_was_there_and_the_pod_that_was_seen() -> None:
    assert [one.kind for one in Intervals().judged([bound("a", 1, "n1/0")])] == ["nowhere"]
    blind = bound("a", 1, "n1/0")
    del blind["requestObject"]["metadata"]["uid"]
    assert kinds(blind) == ["unguarded"]


def test_it_goes_on_where_it_was() -> None:
    intervals = Intervals()
    assert intervals.judged([node("n1"), bound("a", 1, "n1/0")]) == ()
    (found,) = intervals.judged([bound("b", 2, "n1/0")])
    assert found.what == f"ns/b on n1 at {at(2)}: n1/0 was held by ns/a since {at(1)}"
    assert intervals.bindings == 2


def test_a_line_that_is_still_being_written_waits() -> None:
    lines = [json.dumps(node("n1"), separators=(",", ":")) + "\n", '{"objectRef":{"resource":"pods"']
    assert list(entries_of(lines)) == [node("n1")]
