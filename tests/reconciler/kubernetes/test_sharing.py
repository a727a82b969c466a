"""Pods of parts that others have, too."""

from __future__ import annotations

import pytest

from reconciler.kubernetes.objects import sharing
from reconciler.kubernetes.objects.sharing import PodSharing
from reconciler.kubernetes.objects.wire import Pod, read
from tests.reconciler.kubernetes.samples import pod

READY = {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-20T08:01:00Z"}]}
TOLERATES = {"tolerations": [{"key": "theirs", "operator": "Exists"}]}


def a_pod(name: str, gpus: int = 1) -> Pod:
    return read(pod(name, gpus, status=READY, spec=TOLERATES), Pod)


def test_what_pods_say_alike_is_one_object_and_each_says_what_it_said() -> None:
    share = PodSharing()
    one, other, larger = share(a_pod("one")), share(a_pod("other")), share(a_pod("larger", 2))
    assert one == a_pod("one")
    assert larger == a_pod("larger", 2)
    assert one.spec.containers is other.spec.containers
    assert one.spec.containers is not larger.spec.containers
    assert one.status.conditions is larger.status.conditions
    assert one.spec.tolerations is other.spec.tolerations


def test_what_is_known_does_not_grow_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "KNOWN_MAX", 10)
    share = PodSharing()
    for number in range(1, 40):
        assert share(a_pod("p", number)) == a_pod("p", number)
        assert len(share._containers) + len(share._said) <= 10 + 4
