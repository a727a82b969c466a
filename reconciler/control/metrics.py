"""Figures of the control plane for Prometheus, on a registry of their own, fed round by round."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, get_args

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from reconciler.lifecycle.jobs.device_readiness import gpus_of
from reconciler.model.intervention_record import Intervention, InterventionKind
from solver.capacity.partitioning import MIG_CHANGES
from solver.checker.alarm import SHORTFALLS
from solver.model.snapshot import Snapshot
from solver.plan.plan import Inadmissible, Plan, Waits
from solver.plan.violation import Violation
from solver.policy.policy import Policy

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_GPU_STATES = ("held", "free", "cordoned", "unhealthy")
"""Each has a series for each type, 0 as well: a sum over what is not there is nothing, and no 0."""

_PHASE_BUCKETS_S = (0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
"""From an idle round on a laptop to the largest time limit that makes sense."""


class Metrics:
    """Feed it each round; `text` is what a scrape reads. Threads may share it."""

    def __init__(self) -> None:
        # A series beside each counter and histogram that says when it began: none of ours is kept anywhere but in this process.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        self._phases = Histogram(
            "quorate_round_phase_seconds",
            "How long each phase of a round took.",
            ["phase"],
            buckets=_PHASE_BUCKETS_S,
            registry=self._registry,
        )
        self._rounds = Counter(
            "quorate_rounds",
            "Rounds by what decided them: nothing to decide, the greedy answer, or the integer program.",
            ["stage"],
            registry=self._registry,
        )
        self._faults = Counter(
            "quorate_round_faults",
            "Rounds in which the solver failed or its plan was refused, so that the greedy answer stood. Report them.",
            registry=self._registry,
        )
        self._latest = _LatestRound()
        self._registry.register(self._latest)

    def observe(
        self,
        snapshot: Snapshot,
        plan: Plan,
        phase_ms: Mapping[str, float],
        by_hand: Iterable[Intervention] = (),
        shortfalls: Iterable[Violation] = (),
        policy: Policy | None = None,
    ) -> None:
        """Count a round: the gauges show its plan, what that falls short of, its snapshot and what was done by hand."""
        for phase, duration_ms in phase_ms.items():
            self._phases.labels(phase).observe(duration_ms / 1_000)
        self._rounds.labels(plan.certificate.stage).inc()
        self._latest.seen = _Round(snapshot, plan, tuple(by_hand), tuple(shortfalls), policy)

    def fault(self) -> None:
        """Count a round in which the solver's first plan could not be acted on."""
        self._faults.inc()

    def add(self, figures: Collector) -> None:
        """Figures of another part, which are read at each scrape."""
        self._registry.register(figures)

    def text(self) -> bytes:
        """Everything in Prometheus's text format."""
        return generate_latest(self._registry)


class _Round(NamedTuple):
    """`policy` None: any name of a queue counts as one."""

    snapshot: Snapshot
    plan: Plan
    by_hand: tuple[Intervention, ...]
    shortfalls: tuple[Violation, ...]
    policy: Policy | None

    def queue(self, name: str) -> str:
        """For a label; "" for one that policy does not know: anybody may make one up."""
        return name if self.policy is None or self.policy.queue(name) else ""


class _LatestRound(Collector):
    """Gauges read from one round at the moment of the scrape, so that they agree with each other."""

    def __init__(self) -> None:
        self.seen: _Round | None = None
        self._worked_out: tuple[object, tuple[Metric, ...]] = None, ()

    def collect(self) -> Iterator[Metric]:
        seen, (of, gauges) = self.seen, self._worked_out
        if seen is not None and of is not seen:
            gauges = (
                *_plan_gauges(seen.plan),
                *_jobs(seen),
                _gpus(seen.snapshot),
                _partitioning(seen.snapshot),
                _interventions(seen.by_hand),
                _shortfalls(seen.shortfalls),
            )
            self._worked_out = seen, gauges
        yield from gauges


def _shortfalls(found: Iterable[Violation]) -> Metric:
    """How many jobs wait, or leave, that need not; 0 of each kind where there are none."""
    gauge = GaugeMetricFamily(
        "quorate_round_shortfalls",
        "Jobs of the latest round that wait, leave or divide a GPU and need not, by kind (docs/promises.md). Report them.",
        labels=["kind"],
    )
    count = Tally(one.rule for one in found)
    for kind in SHORTFALLS:
        gauge.add_metric([kind], count[kind])
    return gauge


def _plan_gauges(plan: Plan) -> Iterator[Metric]:
    gap = GaugeMetricFamily("quorate_round_gap", "Relative distance of each layer from its bound.", labels=["layer"])
    for layer in plan.certificate.layers:
        gap.add_metric([layer.name], layer.gap)
    yield gap
    yield GaugeMetricFamily(
        "quorate_round_entitled_gpus_unproven",
        "GPUs by which entitled layers may fall short of their bounds.",
        value=plan.certificate.entitled_unproven,
    )


def _jobs(seen: _Round) -> Iterator[Metric]:
    """By their own queue: those of the queues below it are not in it."""
    waiting = Tally(
        (seen.queue(verdict.queue), reason_code(verdict))
        for verdict in seen.plan.verdicts
        if isinstance(verdict, Waits | Inadmissible)
    )
    pending = GaugeMetricFamily(
        "quorate_jobs_pending", "Jobs left waiting by the most telling reason.", labels=["queue", "reason"]
    )
    for labels, jobs in sorted(waiting.items()):
        pending.add_metric(labels, jobs)
    yield pending
    holding = Tally(seen.queue(job.spec.queue) for job in seen.snapshot.jobs if job.phase != "pending")
    running = GaugeMetricFamily("quorate_jobs_running", "Jobs that hold what they need.", labels=["queue"])
    for queue in sorted({queue.name for queue in seen.policy.queues} | {*holding} if seen.policy else holding):
        running.add_metric([queue], holding[queue])
    yield running


def reason_code(verdict: Waits | Inadmissible) -> str:
    """The stable code of the most telling reason."""
    return str(verdict.reasons[0].__struct_config__.tag) if verdict.reasons else "none"


def _gpus(snapshot: Snapshot) -> Metric:
    """Held comes first: a held GPU of a broken node is still a job's, and one with an instance that is held is."""
    held = gpus_of(task for job in snapshot.jobs for task in job.placement)
    states: Tally[tuple[str, str]] = Tally()
    for node in snapshot.nodes:
        for gpu in node.gpus:
            if gpu.id in held:
                state = "held"
            elif not (node.ready and gpu.healthy):
                state = "unhealthy"
            else:
                state = "cordoned" if node.cordoned else "free"
            states[node.gpu_type, state] += 1
    family = GaugeMetricFamily("quorate_gpus", "GPUs by type and state.", labels=["gpu_type", "state"])
    for gpu_type in sorted({gpu_type for gpu_type, _ in states}):
        for state in _GPU_STATES:
            family.add_metric([gpu_type, state], states[gpu_type, state])
    return family


def _partitioning(snapshot: Snapshot) -> Metric:
    """By pool: GPUs that are being partitioned, those of them that are overdue, and changes of the last hour."""
    pools = {gpu.id: node.pool for node in snapshot.nodes for gpu in node.gpus}
    states: Tally[tuple[str, str]] = Tally()
    for asked in snapshot.in_flight.repartitions:
        states[pools.get(asked.device, ""), "overdue" if asked.deadline <= snapshot.time else "in-flight"] += 1
    for counter in snapshot.in_flight.counters:
        if counter.name == MIG_CHANGES:
            states[counter.subject, "in-the-last-hour"] += counter.count
    text = "GPUs that are being partitioned anew, and that were to be in the last hour, by pool."
    family = GaugeMetricFamily("quorate_mig_changes", text, labels=["pool", "state"])
    for labels, changes in sorted(states.items()):
        family.add_metric(labels, changes)
    return family


def _interventions(by_hand: Iterable[Intervention]) -> Metric:
    """By kind, 0 as well: an alert that waits for a figure to appear would miss the first."""
    counts = Tally(each.kind for each in by_hand)
    family = GaugeMetricFamily("quorate_interventions", "What people have put in force by hand.", labels=["kind"])
    for kind in get_args(InterventionKind):
        family.add_metric([kind], counts[kind])
    return family
