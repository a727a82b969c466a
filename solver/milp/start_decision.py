"""Which jobs start on what is free: the greedy answer, or the program's where that is better."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from solver.capacity.free_capacity import FreeCapacity
from solver.milp.cells import Cells
from solver.milp.certificate import Proof, better, layer_results, loose_bounds, with_layers
from solver.milp.classes import JobClass, classes_of
from solver.milp.contenders import contenders
from solver.milp.conversion import point_of
from solver.milp.cut_loop import ByProgram, Deciding
from solver.milp.formulation import Formulation
from solver.milp.optimiser import Effort, Optimiser
from solver.model.cluster import Level
from solver.placement.fit import Fit
from solver.placement.footprint import Footprint, footprint_of
from solver.placement.greedy import greedy
from solver.placement.starts import JobStart, layer_values
from solver.placement.views import fits
from solver.plan.plan import Certificate, LayerResult, Stage
from solver.policy.policy import SolverLimits
from solver.queueing.demand import StartCandidate, SubLayer, sub_layers_of
from solver.queueing.strict_queues import behind_nobody
from solver.quota.entitlement import QuotaHeadroom, Shares
from solver.quota.host_guarantees import HeldAlone
from solver.quota.options import Option
from solver.quota.users import UserRoom, beside_least


@dataclass(frozen=True, slots=True)
class StartDecision:
    """What a round decided. `by`: how, a certificate without layers; `layers`: what it reaches, worked out only if it stands.

    `proof`: states what may be asked to know better how good it is.
    """

    starts: tuple[JobStart, ...]
    by: Certificate
    layers: Callable[[], tuple[LayerResult, ...]]
    proof: Callable[[], Proof] | None = None

    @property
    def certificate(self) -> Certificate:
        """That of a round in which no job leaves."""
        return with_layers(self.by, self.layers())


@dataclass(frozen=True, slots=True)
class PendingDecision:
    """The decision is being worked out: `answer` waits for it. `by_program`: the program runs meanwhile."""

    by_program: bool
    answer: Callable[[], StartDecision]


def begin(
    candidates: Sequence[StartCandidate],
    capacity: FreeCapacity,
    shares: Shares,
    limits: SolverLimits,
    optimiser: Optimiser | None,
    fit_of: Callable[[], Fit | None] = lambda: None,
) -> PendingDecision:
    """Choose what starts: the greedy answer, or the program's where that is better in the first layer in which they differ.

    The program is asked where there is something to choose, and its answer waited for later. `fit_of`: what chooses among places
    that are otherwise alike, where a job could have one.
    """
    able = able_to_start(candidates, capacity, shares)
    fit = fit_of() if able else None
    choice = _Choice(able, capacity, shares, limits, greedy(able, capacity.copy(), shares, fit=fit), fit)
    if optimiser is None or not choice.is_open:
        answer = choice.greedy_answer()
        return PendingDecision(False, lambda: answer)
    formulation, effort = choice.stated(choice.contending), choice.effort
    deciding = Deciding(formulation, capacity, able, shares, optimiser, effort, fit)
    waiting = partial(deciding.until_placed, choice.first) if effort.exact else deciding.begin(choice.first)
    return PendingDecision(True, lambda: choice.better_of_both(waiting(), formulation))


@dataclass(frozen=True)
class _Choice:
    """What there is to choose: the jobs that are able to start, where, and which of them greedy starts `first`."""

    able: tuple[StartCandidate, ...]
    capacity: FreeCapacity
    shares: Shares
    limits: SolverLimits
    first: tuple[JobStart, ...]
    fit: Fit | None = None

    @cached_property
    def sub_layers(self) -> tuple[SubLayer, ...]:
        """Those of all."""
        return sub_layers_of(self.able)

    @cached_property
    def values(self) -> tuple[float, ...]:
        """What greedy reaches."""
        return layer_values(self.first, self.sub_layers, self.shares)

    @cached_property
    def bounds(self) -> tuple[float, ...]:
        """What no answer exceeds."""
        return loose_bounds(self.able, self.sub_layers, self.shares)

    @property
    def is_open(self) -> bool:
        """Whether another answer could be better than greedy's."""
        return len(self.first) < len(self.able) or better(self.bounds, self.values)

    @property
    def effort(self) -> Effort:
        """How hard the policy has the program try."""
        limits = self.limits
        return Effort(limits.gap, limits.time_limit.seconds, limits.seed, limits.mode == "exact")

    @cached_property
    def contending(self) -> tuple[StartCandidate, ...]:
        """The candidates that the program chooses among."""
        started = {start.candidate.job.name for start in self.first}
        return self.able if self.effort.exact else contenders(self.able, started, self.shares, self.capacity)

    def stated(self, candidates: Sequence[StartCandidate]) -> Formulation:
        """The program of which of these start."""
        classes = classes_of(candidates)
        level = closest_cell_level(classes) if self.effort.exact else cell_level(classes)
        formulation = Formulation(classes, Cells(self.capacity, level), self.shares, self.sub_layers)
        formulation.state()
        return formulation

    def greedy_answer(self) -> StartDecision:
        """That of greedy."""
        by = self._by("greedy" if self.able else "none")
        return StartDecision(self.first, by, lambda: self._reached(self.values))

    def better_of_both(self, found: ByProgram, formulation: Formulation) -> StartDecision:
        """The program's answer, or greedy's."""
        by_program = self._with_work_without_gpus(found.starts)
        improved = layer_values(by_program, self.sub_layers, self.shares)
        is_better, all_contend = better(improved, self.values), len(self.contending) == len(self.able)
        values, starts = (improved, by_program) if is_better else (self.values, self.first)
        point = partial(point_of, starts, formulation, found.program, self.capacity)
        known = found.without_refuted_bounds(values, point) if all_contend else found.without_bounds()
        answer = StartDecision(
            starts, self._by("mip" if is_better else "greedy", known), lambda: self._reached(values, known)
        )
        if not known.leaves_bounds_open:
            return answer

        def proof() -> Proof:
            of_all = formulation if all_contend else self.stated(self.able)
            program = of_all.builder.build()
            return Proof(answer.certificate, program, point_of(starts, of_all, program, self.capacity), self.effort)

        return replace(answer, proof=proof)

    def _with_work_without_gpus(self, starts: tuple[JobStart, ...]) -> tuple[JobStart, ...]:
        """The program's starts; where CPU and memory are divided, of which it knows nothing, greedy has those without GPUs."""
        if not self.shares.host.fair:
            return starts
        room, kept = self.capacity.copy(), tuple(start for start in starts if any(start.charge.values()))
        for start in kept:
            room.occupy(start.held)
        return greedy(self.able, room, self.shares, kept, self.fit)

    def _by(self, stage: Stage, found: ByProgram | None = None) -> Certificate:
        """How an answer came about. `found`: what came of the program, if it was run."""
        solution = found.solution if found else None
        return Certificate(
            stage,
            (),
            0.0,
            solution.solver if solution else "greedy",
            self.limits.seed,
            len(found.program.lower) if found else 0,
            len(found.program.row_lower) if found else 0,
            self.limits.mode,
            cuts=found.cuts if found else 0,
        )

    def _reached(self, values: Sequence[float], found: ByProgram | None = None) -> tuple[LayerResult, ...]:
        """The values, beside what is proven of them."""
        return layer_results(values, self.sub_layers, self.bounds, found.solution if found else None, self.limits.gap)


def able_to_start(
    candidates: Sequence[StartCandidate], capacity: FreeCapacity, shares: Shares
) -> tuple[StartCandidate, ...]:
    """Candidates that could start if they were alone. The others can't in any answer, since starts only take room.

    Nor can jobs that would delay such a one in a strict queue.
    """
    headroom, users = QuotaHeadroom(shares), UserRoom(shares.users)
    known: dict[Footprint, bool] = {}

    def has_place(candidate: StartCandidate, option: Option) -> bool:
        footprint = footprint_of(candidate, option)
        if footprint not in known:
            known[footprint] = fits(capacity, candidate, option)
        return known[footprint]

    def alone(candidate: StartCandidate) -> bool:
        job, spec = candidate.job, candidate.job.spec
        return any(
            (not candidate.is_inside_only(option) or _inside(headroom, candidate, option))
            and headroom.allows(spec.queue, option.charge)
            and not users.blocking(job, option.charge)
            and (any(option.charge.values()) or not shares.host.not_lent(HeldAlone(spec.queue, beside_least(spec))))
            and has_place(candidate, option)
            for option in candidate.options
        )

    firsts = {candidate.likeness: candidate for candidate in reversed(candidates)}
    return behind_nobody(candidates, {likeness for likeness, candidate in firsts.items() if alone(candidate)})


def _inside(headroom: QuotaHeadroom, candidate: StartCandidate, option: Option) -> bool:
    return headroom.entitled.part(candidate.job.spec.queue, option.charge) == sum(option.charge.values())


def cell_level(classes: Sequence[JobClass]) -> Level:
    """Blocks, if any gang asks for a block or closer; whole pools do otherwise."""
    return "block" if _asked(classes) & {"island", "rack", "block"} else "pool"


def closest_cell_level(classes: Sequence[JobClass]) -> Level:
    """The one level that gangs ask for, so that each of their domains has rows of its own; where they ask for several, as ever."""
    asked = _asked(classes) - {"pool"}
    return next(iter(asked)) if len(asked) == 1 else cell_level(classes)


def _asked(classes: Sequence[JobClass]) -> set[Level]:
    asked = {level for known in classes for level in known.topology.levels}
    asked |= {level for known in classes for bundles in known.bundles for _, level in bundles}
    return asked | {kept.level for known in classes for kept in known.kept_groups}
