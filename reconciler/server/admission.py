"""Whether a job could ever run under the policy in force, asked as it is submitted: often, and by many at once."""

from __future__ import annotations

from threading import Lock
from typing import Final

from reconciler.control.control import PolicyInForce
from solver.model.cluster import GpuType
from solver.model.node_sets import NodeSet
from solver.model.quantities import Instant
from solver.model.round_cache import RoundCache
from solver.model.snapshot import snapshot_of
from solver.model.workload import Job, JobName, JobSpec
from solver.plan.reasons import AnyReason
from solver.queueing.pools import PoolLimits
from solver.round.admission import Emptied, Gate

JUDGED_MAX: Final = 10_000
"""A gate remembers whatever it was asked: after so many jobs the next one begins."""


class AdmissionCheck:
    """The gate of the latest revision. Any thread may ask; one at a time is answered, since all are tried in the same room."""

    def __init__(self) -> None:
        self._asking = Lock()
        self._cluster: _DeclaredCluster | None = None

    def refusals(self, current: PolicyInForce, spec: JobSpec) -> tuple[AnyReason, ...]:
        """Why such a job could never run on the cluster as it is declared; () where it could."""
        with self._asking:
            return self._declared(current).refusals(Job(JobName(""), Instant(0), spec))

    def gpu_types(self, current: PolicyInForce) -> frozenset[GpuType]:
        """Those that declared nodes have."""
        with self._asking:
            return self._declared(current).gpu_types

    def _declared(self, current: PolicyInForce) -> _DeclaredCluster:
        cluster = self._cluster
        if cluster is None or cluster.revision != current.revision or cluster.judged >= JUDGED_MAX:
            cluster = self._cluster = _DeclaredCluster(current)
        return cluster


class _DeclaredCluster:
    """The cluster of one revision, and how many jobs were tried in it."""

    def __init__(self, current: PolicyInForce) -> None:
        self.revision, self.judged, self._policy = current.revision, 0, current.policy
        self._nodes = snapshot_of(Instant(0), current.nodes, ()).nodes
        self.gpu_types = frozenset(node.gpu_type for node in self._nodes if node.gpu_type is not None)
        self._limits, self._gate = PoolLimits(self._policy, self._nodes), self._new_gate(())

    def refusals(self, job: Job) -> tuple[AnyReason, ...]:
        """Why it could never run here."""
        self.judged += 1
        sets_before, limited = self._limits.node_sets, self._limits.limited(job)
        if self._limits.node_sets != sets_before:
            # The room of the gate before has no such set of nodes.
            self._gate = self._new_gate(self._limits.node_sets)
        return self._gate.admit(limited).reasons

    def _new_gate(self, node_sets: tuple[NodeSet, ...]) -> Gate:
        return Gate(Emptied(self._policy, self._nodes, node_sets), RoundCache())
