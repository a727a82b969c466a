"""What a first round under an imported policy would do with a snapshot: beside what runs, by queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec

from reconciler.analysis.reports.step_words import step_line
from reconciler.documents.repository import Compiled
from reconciler.importers.report import FirstRound, QueueComparison
from solver.milp.optimiser import Optimiser
from solver.model.snapshot import Snapshot, normalised
from solver.model.workload import Job, JobName, QueueName
from solver.plan.plan import Bind, Evict, Inadmissible, Plan, Shrink, Waits
from solver.round.solve import solve
