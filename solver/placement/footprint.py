"""What a gang asks of nodes, whatever its queue: where one finds no place, none of the same footprint does."""

from __future__ import annotations

from solver.placement.homogeneous_gangs import is_homogeneous
from solver.queueing.demand import StartCandidate
from solver.quota.options import Option

Footprint = tuple[object, ...]


def footprint_of(candidate: StartCandidate, option: Option) -> Footprint:
    """That of a gang served in one way. Which data it reads is not part of it: it goes elsewhere before it waits for them."""
    spec = candidate.job.spec
    return spec.task_groups, spec.topology, option.gpu_types, option.shapes, candidate.against


def finds_less_in_less(candidate: StartCandidate, option: Option) -> bool:
    """Whether a gang that finds no place in a room finds none in what is left of it later: its place is not a matter of luck.

    Where groups compete, or bundles and spreads have to be fitted in, nodes are chosen one after the other and not all ways tried.
    """
    return candidate.job.spec.tasks == 1 or is_homogeneous(candidate.job.spec, option)
