"""What the loop does about health: it judges every declared node, keeps that, and puts on record what has changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from reconciler.deeds import Deeds
from reconciler.health.judge import judge
from reconciler.health.policy import HealthPolicy
from reconciler.health.record import NodeHealth, PartHealth
from reconciler.health.signs import signs_of
from reconciler.health.stragglers import Accusation, accusations
from reconciler.jobs.sighted import Sighted
from solver.world.cluster import Node, NodeName
from solver.world.quantities import Instant


@dataclass(frozen=True, slots=True)
class Ward(Deeds):
    """What a leader does about nodes that are not well."""

    def settle(self, sighted: Sighted, policy: HealthPolicy | None, declared: Iterable[Node]) -> int:
        """Judge anew; returns of how many nodes and GPUs the state has changed. Raises StaleEpochError."""
        known = {record.node: record for record in self.plane.health.all()}
        now = self.plane.clock.now()
        judged = {} if policy is None else dict(judgements(known, sighted, policy, declared, now))
        after = {name: judged.get(name, NodeHealth(name)) for name in known.keys() | judged.keys()}
        changed = [after[name] for name in sorted(after) if after[name] != known.get(name, NodeHealth(name))]
        if changed:
            self.plane.health.keep(self.epoch, changed)
        news = [(record.node, part) for record in changed for part in news_of(known.get(record.node), record, now)]
        for node, part in news:
            self.note(f"node-{part.state}", node, f"GPU {part.part}: {part.reason}" if part.part else part.reason)
        return len(news)


def judgements(
    known: dict[NodeName, NodeHealth],
    sighted: Sighted,
    policy: HealthPolicy,
    declared: Iterable[Node],
    now: Instant,
) -> Iterator[tuple[NodeName, NodeHealth]]:
    """The health of every declared node; what is remembered of others is forgotten."""
    accused: defaultdict[NodeName, list[Accusation]] = defaultdict(list)
    tasks = (task for attempt in sighted.attempts.values() for task in attempt.tasks)
    for accusation in accusations(tasks, policy.straggler, now):
        accused[accusation.node].append(accusation)
    for node in declared:
        facts = sighted.facts.get(node.name)
        signs = signs_of(sighted.nodes.get(node.name), facts, accused[node.name], policy)
        before = known.get(node.name, NodeHealth(node.name))
        yield node.name, judge(before, signs, facts is not None, policy, now)


def news_of(before: NodeHealth | None, after: NodeHealth, now: Instant) -> Iterator[PartHealth]:
    """The parts of a node whose state has changed, as they are now."""
    old = {part.part: part for part in before.parts} if before else {}
    new = {part.part: part for part in after.parts}
    for name in sorted(old.keys() | new.keys()):
        part = new.get(name, PartHealth(name, "well", now, "nothing speaks against it any more"))
        if name not in old or part.state != old[name].state:
            yield part
