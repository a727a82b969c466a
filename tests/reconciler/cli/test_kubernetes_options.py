"""Which options of `quorate run` go together on Kubernetes, and whose pods they let it look at."""

from __future__ import annotations

from typing import Any

import click
import pytest

from reconciler.cli.kubernetes_options import kubernetes_settings
from reconciler.kubernetes.objects.pod_ownership import INCUMBENTS, PodOwnership

USUAL: dict[str, Any] = {
    "kubernetes": True,
    "observe": False,
    "observed_schedulers": (),
    "observed_queue": "",
    "mirror_policy": False,
    "kubeconfig": None,
    "namespace": "quorate-system",
    "lease": "quorate",
    "identity": None,
    "qps": 500.0,
    "burst": 1000,
    "mig_configs": "gpu-operator/default-mig-parted-config",
}


@pytest.mark.parametrize(
    ("said", "whose"),
    [
        ({}, None),
        ({"observe": True}, PodOwnership(frozenset(INCUMBENTS))),
        ({"observe": True, "observed_queue": "all"}, PodOwnership(frozenset(INCUMBENTS), "all")),
        ({"observe": True, "observed_schedulers": ("mine", "volcano")}, PodOwnership(frozenset({"mine", "volcano"}))),
    ],
)
def test_whose_pods_are_looked_at(said: dict[str, Any], whose: PodOwnership | None) -> None:
    found = kubernetes_settings(**(USUAL | said))
    assert found is not None
    assert found.observed == whose


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"observed_schedulers": ("mine",)}, "are for --observe"),
        ({"observed_queue": "all"}, "are for --observe"),
        ({"kubernetes": False, "observed_queue": "all"}, "are for --observe"),
        ({"kubernetes": False, "observe": True}, "are for --kubernetes"),
        ({"observe": True, "mirror_policy": True}, "--observe writes nothing"),
    ],
)
def test_what_is_refused(said: dict[str, Any], message: str) -> None:
    with pytest.raises(click.UsageError, match=message):
        kubernetes_settings(**(USUAL | said))


def test_jobs_of_this_machine_need_none_of_it() -> None:
    assert kubernetes_settings(**(USUAL | {"kubernetes": False})) is None
