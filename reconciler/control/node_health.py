"""What the loop does about health: it judges every declared node, keeps that, tries those that may be well, and says so."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from reconciler.control.leader_actions import LeaderActions
from reconciler.lifecycle.health.cap import within_cap
from reconciler.lifecycle.health.judge import judge
from reconciler.lifecycle.health.signs import signs_of
from reconciler.lifecycle.health.stragglers import Accusation, accusations
from reconciler.lifecycle.health.trials import due, order_of, trial_name, updated_trial
from reconciler.lifecycle.jobs.backend_reports import AttemptReport, BackendReports
from reconciler.lifecycle.jobs.device_readiness import gpus_of
from reconciler.model.health_policy import HealthPolicy, NodeTest
from reconciler.model.health_record import NodeHealth, PartHealth
from reconciler.protocols.history import Event
from solver.model.cluster import Node, NodeName
from solver.model.quantities import Instant


@dataclass(frozen=True, slots=True)
class Ward(LeaderActions):
    """What a leader does about nodes that are not well."""

    def settle(self, sighted: BackendReports, policy: HealthPolicy | None, declared: Iterable[Node]) -> int:
        """Judge anew; returns how much has changed. Raises StaleEpochError."""
        known = {record.node: record for record in self.plane.health.all()}
        now, nodes = self.plane.clock.now(), tuple(declared)
        before = {name: _with_trial(record, policy, sighted, now) for name, record in known.items()}
        judged = {}
        if policy is not None:
            judged = within_cap(dict(judgements(before, sighted, policy, nodes, now)), before, nodes, policy)
        if policy is not None and policy.test is not None:
            judged |= dict(self._to_try(judged, policy.test, sighted, nodes, now))
        after = {name: judged.get(name, NodeHealth(name)) for name in known.keys() | judged.keys()}
        changed = [after[name] for name in sorted(after) if after[name] != known.get(name, NodeHealth(name))]
        told = [one for each in changed for one in self._news(known.get(each.node), before.get(each.node), each, now)]
        if changed:
            with self.plane.together():
                self.plane.health.keep(self.epoch, changed)
                self.plane.history.record_events(told)
        # The record before the deed: the next leader sends the same order.
        self._try(after.values(), policy, sighted)
        return len(told)

    def _to_try(
        self,
        judged: dict[NodeName, NodeHealth],
        test: NodeTest,
        sighted: BackendReports,
        nodes: Iterable[Node],
        now: Instant,
    ) -> Iterator[tuple[NodeName, NodeHealth]]:
        """Those that a trial is to begin on: they are there, and nothing runs on them."""
        closed = [node for node in nodes if node.name in judged and judged[node.name].parts]
        if not closed:
            return
        tasks = [task for claim in self.plane.ledger.claims() for task in claim.tasks]
        held = {task.node for task in tasks} | gpus_of(tasks) | self.changing()
        for node in closed:
            seen, record = sighted.nodes.get(node.name), judged[node.name]
            trial = due(record, test, node, held, now) if seen is not None and seen.ready else None
            if trial is not None:
                yield node.name, msgspec.structs.replace(record, trial=trial)

    def _try(self, records: Iterable[NodeHealth], policy: HealthPolicy | None, sighted: BackendReports) -> None:
        if policy is None or policy.test is None:
            return
        for record in records:
            trial = record.trial
            if trial is not None and trial.ended_at is None and not _seen(record, sighted).tasks:
                self.send(order_of(record.node, trial, policy.test))

    def _news(
        self, known: NodeHealth | None, before: NodeHealth | None, after: NodeHealth, now: Instant
    ) -> Iterator[Event]:
        if before is not None and before.trial is not None and known != before:
            told = "it passed its test" if before.trial.passed else f"it failed its test: {before.trial.detail}"
            yield self.event("node-tested", after.node, told)
        for part in news_of(known, after, now):
            reason = f"GPU {part.part}: {part.reason}" if part.part else part.reason
            yield self.event(f"node-{part.state}", after.node, reason)


def judgements(
    known: dict[NodeName, NodeHealth],
    sighted: BackendReports,
    policy: HealthPolicy,
    declared: Iterable[Node],
    now: Instant,
) -> Iterator[tuple[NodeName, NodeHealth]]:
    """The health of every declared node of which there is anything to say; what is remembered of others is forgotten."""
    accused: defaultdict[NodeName, list[Accusation]] = defaultdict(list)
    tasks = (task for attempt in sighted.attempts.values() for task in attempt.tasks)
    for accusation in accusations(tasks, policy.straggler, now):
        accused[accusation.node].append(accusation)
    for node in declared:
        facts = sighted.facts.get(node.name)
        signs = tuple(signs_of(sighted.nodes.get(node.name), facts, accused.get(node.name, ()), policy))
        if signs or node.name in known:
            before = known.get(node.name, NodeHealth(node.name))
            yield node.name, judge(before, signs, facts is not None, policy, now)


def news_of(before: NodeHealth | None, after: NodeHealth, now: Instant) -> Iterator[PartHealth]:
    """The parts of a node with a changed state, or that are held back now, as they are now."""
    old = {part.part: part for part in before.parts} if before else {}
    new = {part.part: part for part in after.parts}
    for name in sorted(old.keys() | new.keys()):
        part = new.get(name, PartHealth(name, "well", now, "nothing speaks against it any more"))
        if name not in old or part.state != old[name].state or (part.held_back and not old[name].held_back):
            yield part


def _seen(record: NodeHealth, sighted: BackendReports) -> AttemptReport:
    return sighted.attempt(trial_name(record.node), int(record.trial.at)) if record.trial else AttemptReport()


def _with_trial(record: NodeHealth, policy: HealthPolicy | None, sighted: BackendReports, now: Instant) -> NodeHealth:
    """What is known of a node, with what has come of its trial."""
    if record.trial is None:
        return record
    test = policy.test if policy is not None else None
    return msgspec.structs.replace(record, trial=updated_trial(record.trial, test, _seen(record, sighted), now))
