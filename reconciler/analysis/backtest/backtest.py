"""The same jobs replayed under one policy after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass

import msgspec

from reconciler.analysis.backtest.figures import PolicyFigures
from reconciler.analysis.backtest.observation import Observation
from reconciler.analysis.backtest.summary import ReplayOutcome
from solver.milp.optimiser import Optimiser
from solver.model.amounts import Amounts, amounts_of, is_port
from solver.model.cluster import Node
from solver.model.quantities import Duration, Instant
from solver.model.shape import Shape
from solver.model.workload import Job
from solver.policy.policy import Policy, Queue, policy_of
from solver.policy.tree import QueueTree
from solver.simulation.replay import Replay
from solver.simulation.trace import ReplayedRound, TraceJob

Follow = Callable[[str, Iterator[ReplayedRound]], Iterator[ReplayedRound]]
"""Hands rounds of a policy on as they are held, to show how far the replay is."""


@dataclass(frozen=True)
class PolicyCandidate:
    """A policy that is to be tried, by the name under which it is reported, and the cluster it is tried on.

    `commit`: the revision it comes from; "": it comes from files.
    """

    name: str
    policy: Policy
    nodes: tuple[Node, ...]
    commit: str = ""


@dataclass(frozen=True)
class Backtest:
    """What every policy is tried with. `forecasts`: whether jobs are told when they might start, to see how good that is."""

    jobs: Sequence[TraceJob]
    start: Instant
    end: Instant
    cadence: Duration
    optimiser: Optimiser | None
    forecasts: bool = True

    def under(self, candidate: PolicyCandidate, follow: Follow) -> PolicyFigures:
        """Replay the jobs under a policy."""
        outcome, notes = self.replayed(candidate, follow)
        found = outcome.figures(candidate.name, candidate.commit, notes)
        return msgspec.structs.replace(found, digest=candidate.policy.digest)

    def replayed(self, candidate: PolicyCandidate, follow: Follow) -> tuple[ReplayOutcome, tuple[str, ...]]:
        """The same before figures are made of it, and what had to be assumed."""
        policy, notes = with_queues_of(self.jobs, candidate.policy)
        jobs, uncounted = on_declared_resources(self.jobs, candidate.nodes)
        if not self.forecasts:
            # It changes no decision, and takes time.
            scheduling = msgspec.structs.replace(policy.scheduling, estimated_jobs=0)
            policy = msgspec.structs.replace(policy, scheduling=scheduling)
        replay, seen = Replay(candidate.nodes, policy, self.optimiser, self.cadence), Observation()
        for decided in follow(candidate.name, replay.rounds(jobs, self.end)):
            seen.note(decided)
        seen.close(replay.runs, self.end)
        return ReplayOutcome(replay, jobs, self.start, self.end, seen), (*notes, *uncounted)


def with_queues_of(jobs: Sequence[TraceJob], policy: Policy) -> tuple[Policy, tuple[str, ...]]:
    """The policy with the jobs' queues in it, and what is to be said of those that it did not have."""
    tree = QueueTree.of(policy)
    wanted = {job.job.spec.queue for job in jobs}
    missing = sorted(wanted - set(tree.by_name))
    added = tuple(Queue(queue) for queue in missing)
    if missing and len(missing) == len(wanted):
        said = f"none of the trace's {len(wanted)} queues is in the policy: they share the cluster equally, without its quota tree"
        return policy_of(added, policy.priority_classes, policy.scheduling, policy.sharing, policy.mig), (said,)
    notes = []
    if missing:
        notes.append(
            f"not in the policy, so added beside its roots without a guarantee of their own: {', '.join(missing)}"
        )
        of = (policy.priority_classes, policy.scheduling, policy.sharing, policy.mig, policy.reservations)
        policy = policy_of((*policy.queues, *added), *of)
    inner = sorted(queue for queue in wanted if queue in tree.by_name and not tree.is_leaf(queue))
    if inner:
        notes.append(f"other queues lie below these in the policy, so none of their jobs can run: {', '.join(inner)}")
    return policy, tuple(notes)


def on_declared_resources(
    jobs: Sequence[TraceJob], nodes: Iterable[Node]
) -> tuple[Sequence[TraceJob], tuple[str, ...]]:
    """The jobs without the resources that no node says anything of, and which these are.

    Pods ask for what nodes of a cluster say of themselves, and NodePools in Git need not: no such job would ever start.
    """
    declared = {name for node in nodes for name in node.resources}
    asked = {name for one in jobs for group in one.job.spec.task_groups for name in group.shape.resources}
    unknown = {name for name in asked - declared if not is_port(name)}
    if not unknown:
        return jobs, ()
    without = tuple(msgspec.structs.replace(one, job=_without(one.job, unknown)) for one in jobs)
    return without, (f"no node declares these, so they are not counted: {', '.join(sorted(unknown))}",)


def _without(job: Job, unknown: Set[str]) -> Job:
    groups = tuple(
        msgspec.structs.replace(
            group, shape=msgspec.structs.replace(group.shape, resources=_known(group.shape, unknown))
        )
        for group in job.spec.task_groups
    )
    return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, task_groups=groups))


def _known(shape: Shape, unknown: Set[str]) -> Amounts:
    return amounts_of({name: amount for name, amount in shape.resources.items() if name not in unknown})
