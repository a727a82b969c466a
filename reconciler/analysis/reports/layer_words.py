"""The layers of a certificate, a sentence each: what the plan reaches, and the most that any plan could."""

from __future__ import annotations

from typing import Final, NamedTuple

from solver.plan.plan import Certificate, LayerResult, ProofStatus

_SERVED: Final = {
    "entitled": "that queues are entitled to",
    "fair": "within the fair shares of queues, those they are entitled to among them",
    "leftover": "in all, those beyond fair shares among them",
}
"""What a layer counts, by the first part of its name. The rest is a sub-layer: SLO class, rank of the priority value, growth."""

_HARM: Final = {
    "reclaim": "by jobs that give back what their queues had borrowed",
    "preempt": "by jobs of lower priority in the same queue",
    "turn": "by jobs whose turn is over",
    "straddle": "by jobs that cross a guarantee",
    "move": "by jobs that move",
}
"""Means by which jobs leave."""


class LayerLine(NamedTuple):
    """A layer as a person reads it."""

    name: str
    words: str
    status: ProofStatus


def layer_lines(certificate: Certificate) -> tuple[LayerLine, ...]:
    """Every layer in its order: a layer counts only where all before it are equal.

    Without a program the bounds are what is asked for, which is said.
    """
    return tuple(
        LayerLine(layer.name, _words(layer, bool(certificate.columns)), layer.status) for layer in certificate.layers
    )


def _words(layer: LayerResult, is_bounded: bool) -> str:
    kind, _, rest = layer.name.partition(".")
    if kind.endswith("-harm"):
        return _harm(layer, rest)
    if kind in _SERVED:
        return _served(layer, _of_class(rest), _SERVED[kind], is_bounded)
    distance = {
        "fit": "away from the types and the closeness that jobs wish for",
        "type-weight": "of weight above the lightest type, of jobs that name no type",
    }.get(kind, "above none")
    return _least(layer, distance)


def _served(layer: LayerResult, of: str, what: str, is_bounded: bool) -> str:
    if layer.status == "proven":
        return f"{of} the plan serves {_gpus(layer.value)} {what}; no plan can serve more."
    told = f"{of} the plan serves {_number(layer.value)} of at most {_gpus(layer.bound)} {what}"
    if not is_bounded:
        return f"{told}, which is all that is asked for; whether a plan can serve more is not known."
    if layer.status == "within-gap":
        return f"{told}; no plan can serve more than that, and the policy allows the gap."
    return f"{told}; no plan can serve more than that, and whether one serves as many is not known."


def _least(layer: LayerResult, distance: str) -> str:
    if not layer.value:
        return f"The plan is 0 GPUs {distance}; no plan can do better."
    told = f"The plan is {_gpus(abs(layer.value))} {distance}"
    if layer.status == "proven":
        return f"{told}; no plan that does as well in the layers before can do with less."
    if layer.bound:
        return f"{told}; no plan can do with less than {_number(abs(layer.bound))}."
    return f"{told}; whether less would do is not known."


def _harm(layer: LayerResult, means: str) -> str:
    by = _HARM.get(means, f"by {means}")
    if not layer.value:
        return f"No work is lost {by}."
    return f"{_number(abs(layer.value))} GPU-hours of work are lost {by}; whether fewer would do is not known."


def _of_class(sub_layer: str) -> str:
    """The jobs of a sub-layer, as a sentence begins."""
    slo_class, _, rank = sub_layer.partition(".")
    number, _, grows = rank.partition(".")
    place = (
        "the highest priority"
        if number == "0"
        else f"priority rank {int(number) + 1}"
        if number.isdecimal()
        else "any priority"
    )
    return f"Of {slo_class or 'all'} jobs of {place}{', by which they grow,' if grows else ''}"


def _gpus(amount: float) -> str:
    number = _number(amount)
    return f"{number} GPU" if number == "1" else f"{number} GPUs"


def _number(amount: float) -> str:
    return f"{amount:,.1f}".removesuffix(".0")
