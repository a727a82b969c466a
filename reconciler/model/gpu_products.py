"""GPU types by product names, as NVML gives them, and GPU feature discovery writes on nodes of Kubernetes with hyphens for spaces.

Ours say form factor and memory, as node pools in Git spell them; a product that is not listed keeps its name without the maker's.
On Kubernetes, for another name of a type the node is labelled `quorate.dev/gpu-type`.
"""

from __future__ import annotations

import re
from typing import Final

from solver.model.cluster import GpuType

TYPE_OF_PRODUCT: Final[dict[str, str]] = {
    "A10": "A10-24GB",
    "A100-80GB-PCIe": "A100-PCIe-80GB",
    "A100-PCIE-40GB": "A100-PCIe-40GB",
    "A100-PCIE-80GB": "A100-PCIe-80GB",
    "A100-SXM-64GB": "A100-SXM4-64GB",
    "A100-SXM4-40GB": "A100-SXM4-40GB",
    "A100-SXM4-80GB": "A100-SXM4-80GB",
    "A10G": "A10G-24GB",
    "A30": "A30-24GB",
    "B200": "B200-180GB",
    "H100-80GB-HBM3": "H100-SXM5-80GB",
    "H100-NVL": "H100-NVL-94GB",
    "H100-PCIe": "H100-PCIe-80GB",
    "H200": "H200-SXM5-141GB",
    "H200-NVL": "H200-NVL-141GB",
    "L4": "L4-24GB",
    "L40S": "L40S-48GB",
    "T4": "T4-16GB",
}
"""By the product without `NVIDIA-` or `Tesla-` before it."""

_MAKER = re.compile(r"^(?:NVIDIA-|Tesla-)+")
_SHARED = re.compile(r"-SHARED$")
_INSTANCE = re.compile(r"-MIG-([0-9a-z.+]+)$")


def type_of_product(product: str) -> GpuType:
    """The GPU type; "" for no product. What sharing and MIG add to the product's name is left out."""
    bare = _INSTANCE.sub("", _SHARED.sub("", _MAKER.sub("", product.replace(" ", "-"))))
    return GpuType(TYPE_OF_PRODUCT.get(bare, bare))


def is_of_instances(product: str) -> bool:
    """The node says of `nvidia.com/gpu` that it counts MIG instances (strategy `single`)."""
    return bool(_INSTANCE.search(_SHARED.sub("", product)))
