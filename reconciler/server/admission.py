"""Whether a job could ever run under the policy in force, asked as it is submitted: often, and by many at once."""

from __future__ import annotations

from threading import Lock
from typing import Final

from reconciler.control.control import PolicyInForce
from solver.model.quantities import Instant
from solver.model.round_cache import RoundCache
from solver.model.snapshot import snapshot_of
from solver.model.workload import Job, JobName, JobSpec
from solver.plan.reasons import AnyReason
from solver.round.admission import Emptied, Gate

JUDGED_MAX: Final = 10_000
"""A gate remembers whatever it was asked: after so many jobs the next one begins."""


class AdmissionCheck:
    """The gate of the latest revision. Any thread may ask; one at a time is answered, since all are tried in the same room."""

    def __init__(self) -> None:
        self._asking = Lock()
        self._gate: tuple[str, Gate] | None = None
        self._judged = 0

    def refusals(self, current: PolicyInForce, spec: JobSpec) -> tuple[AnyReason, ...]:
        """Why such a job could never run on the cluster as it is declared; () where it could."""
        with self._asking:
            gate = self._gate_of(current)
            self._judged += 1
            return gate.admit(Job(JobName(""), Instant(0), spec)).reasons

    def _gate_of(self, current: PolicyInForce) -> Gate:
        if self._gate is None or self._gate[0] != current.revision or self._judged >= JUDGED_MAX:
            nodes = snapshot_of(Instant(0), current.nodes, ()).nodes
            self._gate, self._judged = (current.revision, Gate(Emptied(current.policy, nodes), RoundCache())), 0
        return self._gate[1]
