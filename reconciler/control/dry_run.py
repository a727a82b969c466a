"""What a round would have done, where nothing is done: of each job once, and again only when it is something else. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from reconciler.model.causes import names_of, nodes_of, why_evicted
from solver.model.document import digest
from solver.plan.plan import Bind, Evict, Grow, Plan, Release, Repartition, Shrink, Verdict, Waits

Wishes = Mapping[str, "ProposedStep"]
"""By the job that they are of, or the GPU."""


class ProposedStep(NamedTuple):
    """A step that is not made true: the kind of its event, the job it would be for, and more of it in words."""

    event: str
    cause: str
    beneficiary: str = ""


def wishes_of(plan: Plan) -> dict[str, ProposedStep]:
    """The steps of a plan that would change what runs. Promises, which change nothing by themselves, are not among them."""
    return dict(_wishes(plan))


def _wishes(plan: Plan) -> Iterator[tuple[str, ProposedStep]]:
    for step in plan.steps:
        match step:
            case Bind():
                yield step.job, ProposedStep("would-start", f"attempt {step.attempt} on {nodes_of(step.tasks)}")
            case Grow():
                yield step.job, ProposedStep("would-grow", f"{names_of(step.tasks)} on {nodes_of(step.tasks)}")
            case Evict():
                yield step.job, ProposedStep("would-evict", why_evicted(step), step.beneficiary or "")
            case Shrink():
                yield step.job, ProposedStep("would-shrink", why_evicted(step), step.beneficiary or "")
            case Release():
                yield step.job, ProposedStep("would-release", "it did not become ready in time")
            case Repartition():
                yield step.device, ProposedStep("would-repartition", f"GPU of {step.node}")
            case _:
                pass


def new_in(wishes: Wishes, before: Wishes) -> Iterator[tuple[str, ProposedStep]]:
    """Those of which the round before did not say the same. On which nodes makes no difference: others fill and empty them."""
    for subject, wish in wishes.items():
        said = before.get(subject)
        if said is None or (said.event, said.beneficiary) != (wish.event, wish.beneficiary):
            yield subject, wish


def meaning_of(plan: Plan) -> str:
    """What a plan says, as a digest: two with the same say nothing new. When waiting jobs could start is not of it."""
    wishes = sorted((subject, wish.event, wish.beneficiary) for subject, wish in wishes_of(plan).items())
    return digest((wishes, [_without_estimate(verdict) for verdict in plan.verdicts]))


def _without_estimate(verdict: Verdict) -> Verdict:
    return msgspec.structs.replace(verdict, estimate=None) if isinstance(verdict, Waits) else verdict
