"""How good a plan is, in a line: which part of the solve decided, and what is proven of it."""

from __future__ import annotations

from reconciler.analysis.reports.outline import UntrustedText, Words
from solver.plan.plan import Certificate, LayerResult
from solver.plan.reason import count

TOLD = 3
"""Layers that are told of one by one, from the first on: a layer counts only where all before it are equal."""


def proof_of(certificate: Certificate) -> Words:
    """A certificate in a line: which layers are proven, and of the others what is reached and what no plan exceeds."""
    if certificate.stage == "none":
        return ("nothing to decide",)
    unproven = [layer for layer in certificate.layers if layer.status == "unproven"]
    if not unproven:
        within = any(layer.status == "within-gap" for layer in certificate.layers)
        gap = ", or within the gap that the policy allows" if within else ""
        return (f"decided by {certificate.stage}; all layers proven{gap}",)
    layers = count(len(certificate.layers), "layer")
    decided = f"decided by {certificate.stage}; {len(certificate.layers) - len(unproven)} of {layers} proven; "
    if not certificate.columns:
        # The bounds are then what is asked for, which says nothing of how good the answer is.
        evicting = any("-harm." in layer.name for layer in certificate.layers)
        why = "victims are chosen by search" if evicting else "the integer program gave no answer"
        return (f"{decided}how much better a plan could be is not known: {why}",)
    told = [word for layer in unproven[:TOLD] for word in (*_known_of(layer), "; ")]
    rest = f"{count(len(unproven) - TOLD, 'later layer')} not proven" if len(unproven) > TOLD else ""
    return decided, *(told if rest else told[:-1]), rest


def _known_of(layer: LayerResult) -> Words:
    """What the plan reaches in a layer, and the most that any plan can. Of harm and misfit the best is none at all."""
    name = UntrustedText(layer.name)
    if "-harm." in layer.name:
        return name, f" loses {abs(layer.value):.1f} GPU-hours, and whether fewer would do is not known"
    if not layer.bound:
        return name, f" is {abs(layer.value):.1f} above none, and whether less would do is not known"
    return name, f" serves {_gpus(layer.value)}, and no plan serves more than {_gpus(layer.bound)}"


def _gpus(amount: float) -> str:
    number = f"{amount:.1f}".removesuffix(".0")
    return f"{number} GPU" if number == "1" else f"{number} GPUs"
