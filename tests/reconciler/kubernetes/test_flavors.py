"""What a ClusterQueue of Kueue counts of an admission."""

from __future__ import annotations

from reconciler.kubernetes.objects.flavors import ClusterQueue, Flavors, ResourceFlavor
from reconciler.kubernetes.objects.wire import read

H100, A100 = {"gpu": "h100", "zone": "a"}, {"gpu": "a100"}


def known() -> Flavors:
    flavors = Flavors()
    for name, labels in (("old", {"gpu": "a100"}), ("new", {"gpu": "h100"}), ("any", {})):
        flavors.flavor(None, read({"metadata": {"name": name}, "spec": {"nodeLabels": labels}}, ResourceFlavor))
    groups = [
        {
            "coveredResources": ["cpu", "nvidia.com/gpu"],
            "flavors": [{"name": "old"}, {"name": "new"}, {"name": "gone"}],
        },
        {"coveredResources": ["memory"], "flavors": [{"name": "any"}]},
    ]
    flavors.queue(None, read({"metadata": {"name": "q"}, "spec": {"resourceGroups": groups}}, ClusterQueue))
    return flavors


def test_each_resource_is_counted_by_the_first_flavor_that_all_nodes_are() -> None:
    asked = ("cpu", "memory", "nvidia.com/gpu", "rdma/hca")
    assert known().assigned("q", asked, [H100, H100]) == {"cpu": "new", "nvidia.com/gpu": "new", "memory": "any"}
    assert known().assigned("q", asked, [A100]) == {"cpu": "old", "nvidia.com/gpu": "old", "memory": "any"}
    assert known().assigned("q", asked, [A100, H100]) == {"memory": "any"}, "no flavor is both"
    assert known().assigned("another", asked, [H100]) == {}
