"""How good a plan is, in a line: which part of the solve decided, and what is proven of it."""

from __future__ import annotations

from solver.plan.plan import Certificate, LayerResult


def proof_of(certificate: Certificate) -> str:
    """A certificate in a line."""
    if certificate.stage == "none":
        return "nothing to decide"
    statuses = {layer.status for layer in certificate.layers}
    unproven = [layer for layer in certificate.layers if layer.status == "unproven"]
    if unproven:
        proof = ", ".join(map(_short_of, unproven))
    elif "within-gap" in statuses:
        proof = "all layers proven, or within the gap that the policy allows"
    else:
        proof = "all layers proven"
    return f"decided by {certificate.stage}; {proof}"


def _short_of(layer: LayerResult) -> str:
    """How far a layer may be from the best. Of harm and misfit the best is none at all, and nothing is a part of that."""
    if layer.bound:
        return f"{layer.name} {layer.gap:.2%} from bound"
    amount = f"{abs(layer.value):.1f}" + (" GPU-hours" if "-harm." in layer.name else "")
    return f"{layer.name} ({amount}) not proven least"
