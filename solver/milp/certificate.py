"""How good an answer is: its value in each layer beside the most that any answer could reach, and what is thereby proven."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from math import inf

import msgspec

from solver.milp.optimiser import Effort, Optimiser, Program, Solution, begun
from solver.model.arrays import Floats
from solver.model.cluster import GpuType
from solver.model.quantities import MILLI_PER_GPU
from solver.model.workload import JobName
from solver.placement.starts import ENTITLED, Segment, layer_names, parts_inside, segments_of
from solver.plan.plan import Certificate, LayerResult, ProofStatus
from solver.policy.harm import MEANS
from solver.preemption.new_nomination import NewNomination
from solver.queueing.demand import StartCandidate, SubLayer
from solver.quota.entitlement import Inside, Shares
from solver.quota.vacated import COUNTED

SAME = 1e-6
"""Two layer values closer than this, relatively, are the same: the tolerance at which the optimiser locks its layers."""


def layer_results(
    values: Sequence[float],
    sub_layers: Sequence[SubLayer],
    bounds: Sequence[float],
    solution: Solution | None,
    gap: float,
) -> tuple[LayerResult, ...]:
    """Values beside bounds. `bounds` hold for any answer; the solution's tighter ones are given what its earlier layers reached.

    So they hold for this answer only as long as it reached as much in all of those.
    """
    told = [known.bound for known in solution.reached[: in_step(values, solution)]] if solution else []
    return tuple(
        _result(name, value, min(loose, bound), gap)
        for name, value, loose, bound in zip(
            layer_names(sub_layers), values, bounds, (*told, *repeat(inf, len(values) - len(told))), strict=True
        )
    )


def in_step(values: Sequence[float], solution: Solution) -> int:
    """For how many layers, from the first on, a solution's bounds hold for an answer of these values.

    A bound holds for all that have as much in each layer before.
    """
    in_order = enumerate(zip(values, solution.reached, strict=True))
    short = (number for number, (value, known) in in_order if value < known.value and not same(value, known.value))
    return next(short, len(values)) + 1


@dataclass(frozen=True, slots=True)
class Proof:
    """What is asked of a program once a round is decided: how good it could have been.

    `certificate`: what is known already; `point`: what the round does, in the program's columns.
    """

    certificate: Certificate
    program: Program
    point: Floats
    effort: Effort

    def begin(self, optimiser: Optimiser) -> Callable[[], Certificate]:
        """Ask, and wait for the tighter certificate later; where no answer comes it stays as it is."""
        waiting = begun(optimiser, self.program, self.point, replace(self.effort, bounding=True))

        def certificate() -> Certificate:
            found = waiting()
            bounds = dict[str, float]()
            for layer, reached in zip(self.program.objectives, found.reached, strict=True) if found else ():
                bounds[layer.name] = reached.bound
            return tightened(self.certificate, bounds, self.effort.gap)

        return certificate


@dataclass(frozen=True, slots=True)
class _AtBest:
    """What gangs that are alike have at their own best.

    `milli`: the most of a type that one needs, and by which it grows (True); `worth` and `growth` in GPUs.
    """

    milli: Mapping[tuple[bool, GpuType], int]
    worth: float
    growth: float

    @classmethod
    def of(cls, candidate: StartCandidate) -> _AtBest:
        """That of a candidate and all of its likeness."""
        most: dict[tuple[bool, GpuType], int] = defaultdict(int)
        for option in candidate.options:
            for segment, milli in segments_of(candidate, option, option.wanted):
                part = segment.sub_layer.growth, segment.gpu_type
                most[part] = max(milli, most[part])
        return cls(
            most, max(option.worth for option in candidate.options), max(option.growth for option in candidate.options)
        )


def loose_bounds(
    candidates: Iterable[StartCandidate], sub_layers: Sequence[SubLayer], shares: Shares
) -> tuple[float, ...]:
    """What no answer can exceed: every candidate started at its own best, only guarantees and fair shares respected."""
    demand: dict[SubLayer, dict[Segment, int]] = defaultdict(lambda: defaultdict(int))
    weight: dict[Segment, float] = {}
    served = dict.fromkeys(sub_layers, 0.0)
    known: dict[int, _AtBest] = {}
    for candidate in candidates:
        best = known.get(candidate.likeness) or known.setdefault(candidate.likeness, _AtBest.of(candidate))
        layer, weighs = candidate.sub_layer, candidate.weight
        for (grows, gpu_type), milli in best.milli.items():
            # What may not borrow is counted first only where it is there; no answer need start it.
            counted = layer.of_growth if grows else layer
            segment = Segment(True, counted, candidate.band, candidate.job.spec.queue, gpu_type)
            demand[counted][segment] += milli
            weight[segment] = weighs
        served[layer] += weighs * best.worth
        if best.growth:
            served[layer.of_growth] += weighs * best.growth
    inside = [
        _weighed(parts_inside(demand[layer], Inside(shares.tree, left)), weight)
        for left in (shares.entitled_room, shares.fair_room)
        for layer in sub_layers
    ]
    return (*inside, *served.values(), 0.0, 0.0)


def _weighed(parts: Mapping[Segment, int], weight: Mapping[Segment, float]) -> float:
    return sum(weight[segment] * part / MILLI_PER_GPU for segment, part in parts.items())


def entitled_unproven(results: Sequence[LayerResult]) -> float:
    """GPUs, weighted by their order, by which entitled layers may fall short of the best answer."""
    return _tidy(sum(r.bound - r.value for r in results if r.name.startswith(ENTITLED) and r.status == "unproven"))


def with_layers(certificate: Certificate, layers: tuple[LayerResult, ...]) -> Certificate:
    """The certificate of an answer that reaches this."""
    return msgspec.structs.replace(certificate, layers=layers, entitled_unproven=entitled_unproven(layers))


def with_victims(
    told: Sequence[Certificate],
    layers: Sequence[LayerResult],
    nominations: Sequence[NewNomination],
    by_program: Collection[JobName],
) -> Certificate:
    """That of a round in which others leave. `told`: how the answers came about by which it was decided.

    `by_program`: jobs that the program had leave or move; those that a search did are the rest.
    """
    by = max(told, key=lambda known: (known.stage == "mip", known.columns))
    by = msgspec.structs.replace(by, stage="mip" if by.stage == "mip" else "greedy")
    asked = sorted({name for nomination in nominations for name in nomination.asked})
    if asked:
        by = msgspec.structs.replace(
            by,
            victims_by_program=tuple(name for name in asked if name in by_program),
            victims_by_search=tuple(name for name in asked if name not in by_program),
        )
    return with_layers(by, tuple(_with_harm(layers, nominations)) if nominations else tuple(layers))


def _with_harm(layers: Sequence[LayerResult], nominations: Sequence[NewNomination]) -> Iterator[LayerResult]:
    """The layers, with the harm done for each tier below it: GPU-hours lost by each means, the worst first."""
    for number, layer in enumerate(layers):
        yield layer
        kind = layer.name.partition(".")[0]
        if kind in COUNTED and layers[number + 1].name.partition(".")[0] != kind:
            for means in (*reversed(MEANS), "move"):
                lost = sum(
                    gpu_s
                    for nomination in nominations
                    for by, gpu_s in nomination.lost_gpu_s
                    if (nomination.tier if nomination.tier in COUNTED else "fair") == kind and by == means
                )
                yield LayerResult(f"{kind}-harm.{means}", 0.0 - lost / 3600, 0.0, "unproven" if lost else "proven")


def tightened(certificate: Certificate, bounds: Mapping[str, float], gap: float) -> Certificate:
    """The certificate, with bounds of some layers where they are tighter."""
    layers = tuple(_tightened(known, bounds.get(known.name, inf), gap) for known in certificate.layers)
    return with_layers(certificate, layers)


def _tightened(layer: LayerResult, bound: float, gap: float) -> LayerResult:
    return layer if bound >= layer.bound else _result(layer.name, layer.value, max(bound, layer.value), gap)


def _result(name: str, value: float, bound: float, gap: float) -> LayerResult:
    """Entitled layers are proven or not; in the others a gap will do."""
    status = _status(value, bound, 0.0 if name.startswith(ENTITLED) else gap)
    return LayerResult(name, _tidy(value), _tidy(bound), status)


def same(one: float, other: float) -> bool:
    """Equal but for rounding."""
    return abs(one - other) <= SAME * max(1.0, abs(one), abs(other))


def better(one: Sequence[float], other: Sequence[float]) -> bool:
    """Lexicographically larger, rounding aside."""
    for mine, theirs in zip(one, other, strict=True):
        if not same(mine, theirs):
            return mine > theirs
    return False


def _status(value: float, bound: float, gap: float) -> ProofStatus:
    if same(value, bound):
        return "proven"
    return "within-gap" if bound - value <= gap * max(1.0, abs(bound)) else "unproven"


def _tidy(value: float) -> float:
    return round(value, 6) + 0.0
