"""Which GPU type is meant where a source does not say it: what the command line and the nodes tell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from reconciler.importers.inventory import SourceNode, SourcePool
from reconciler.kubernetes.objects import names
from reconciler.model.gpu_products import type_of_product
from reconciler.model.problem import InvalidDocumentsError, problem_of

GPU_RESOURCES: Final = ("nvidia.com/gpu", "nvidia.com/gpu.shared", "amd.com/gpu", "gpu.intel.com/i915")
"""Names of whole GPUs as a resource of Kubernetes."""
MIG_RESOURCES: Final = "nvidia.com/mig-"


@dataclass(frozen=True)
class GpuTypes:
    """`said`: types by what the source calls them (a flavor, a type of Slurm); `only`: the type of all GPUs, "" if none is said.

    `pools`: the nodes that are known.
    """

    said: Mapping[str, str] = field(default_factory=dict)
    only: str = ""
    pools: tuple[SourcePool, ...] = ()

    @property
    def nodes(self) -> Iterable[SourceNode]:
        """Every node that is known."""
        return (node for pool in self.pools for node in pool.nodes)

    @property
    def known(self) -> list[str]:
        """The types that nodes have, sorted."""
        return sorted({node.gpu_type for node in self.nodes if node.gpu_type})

    def named(self, name: str) -> str:
        """The type that a name of the source stands for: as the command line says it, else the name itself."""
        return self.said.get(name, name)

    def one(self, origin: str, what: str) -> str:
        """The only type there is, for a source that has GPUs without types. Raises InvalidDocumentsError where that is unclear."""
        if self.only:
            return self.only
        if len(self.known) == 1:
            return self.known[0]
        if self.known:
            message = f"{what} has GPUs of no type, and the nodes have {', '.join(self.known)}"
            fix = "Say the type that is meant with --gpu-type TYPE, and add the others' quota by hand."
        else:
            message = f"{what} has GPUs, and nothing says of which type"
            fix = "Give the nodes with --nodes FILE, or say --gpu-type TYPE."
        raise InvalidDocumentsError([problem_of(origin, "gpu-type", message, fix)])

    def of_labels(self, labels: Mapping[str, str]) -> str:
        """The type of nodes with such labels: what the labels say, else the only one of the nodes that have them; "" if unclear."""
        stated = labels.get(names.GPU_TYPE) or type_of_product(labels.get(names.PRODUCT, ""))
        if stated:
            return stated
        found = {node.gpu_type for node in self.matching(labels) if node.gpu_type}
        return found.pop() if len(found) == 1 else ""

    def matching(self, labels: Mapping[str, str]) -> list[SourceNode]:
        """The nodes that have all these labels."""
        return [node for node in self.nodes if all(node.labels.get(key) == value for key, value in labels.items())]

    def pools_matching(self, labels: Mapping[str, str]) -> set[str]:
        """The names of the pools with such nodes."""
        matching = {node.name for node in self.matching(labels)}
        return {pool.name for pool in self.pools if any(node.name in matching for node in pool.nodes)}
