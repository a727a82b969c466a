"""How good a plan is, in a line: which part of the solve decided, and what is proven of it."""

from __future__ import annotations

from reconciler.analysis.reports.outline import UntrustedText, Words
from solver.plan.plan import Certificate, LayerResult
from solver.plan.reason import count


def proof_of(certificate: Certificate) -> Words:
    """A certificate in a line."""
    if certificate.stage == "none":
        return ("nothing to decide",)
    decided = f"decided by {certificate.stage}; "
    unproven = [layer for layer in certificate.layers if layer.status == "unproven"]
    if unproven and not certificate.columns:
        # What bounds them then is that nobody can get more than asked for, which says nothing of how good the answer is.
        layers = count(len(certificate.layers), "layer")
        evicting = any("-harm." in layer.name for layer in certificate.layers)
        why = "who leaves is chosen by search" if evicting else "the integer program gave no answer"
        return (
            f"{decided}{len(certificate.layers) - len(unproven)} of {layers} proven, and no tight bound on the others: {why}",
        )
    if unproven:
        first, *others = map(_short_of, unproven)
        return decided, *first, *(word for other in others for word in (", ", *other))
    within = any(layer.status == "within-gap" for layer in certificate.layers)
    return (f"{decided}all layers proven{', or within the gap that the policy allows' if within else ''}",)


def _short_of(layer: LayerResult) -> Words:
    """How far a layer may be from the best. Of harm and misfit the best is none at all, and nothing is a part of that."""
    if layer.bound:
        return UntrustedText(layer.name), f" at most {layer.gap:.2%} below the best"
    amount = f"{abs(layer.value):.1f}" + (" GPU-hours" if "-harm." in layer.name else "")
    return UntrustedText(layer.name), f" ({amount}) not proven least"
