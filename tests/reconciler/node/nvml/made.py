"""Cards of the models that the table of MIG profiles knows, and some that can't be partitioned."""

from __future__ import annotations

from tests.reconciler.node.nvml.card import Card

PRODUCTS = {
    "A100-40GB": "NVIDIA A100-SXM4-40GB",
    "A100-80GB": "NVIDIA A100 80GB PCIe",
    "H100-80GB": "NVIDIA H100 80GB HBM3",
    "H100-NVL-94GB": "NVIDIA H100 NVL",
    "H200-141GB": "NVIDIA H200",
    "B200-180GB": "NVIDIA B200",
    "A30-24GB": "NVIDIA A30",
}
"""What the driver calls each of them."""


def card_of(model: str, number: int = 0) -> Card:
    """One of that model."""
    ampere = model.startswith("A")
    total = int(model.rsplit("-", 1)[-1].removesuffix("GB")) * 2**30
    return Card(number, PRODUCTS[model], model, "ampere" if ampere else "hopper", total)


def workstation(number: int = 0) -> Card:
    """A card with neither MIG, ECC, row remapping nor NVLink."""
    return Card(number, "NVIDIA L4", "", uncorrectable=None, remapped=None, temperature=None)
