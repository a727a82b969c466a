"""What the API answers about the past: jobs as they were submitted, and how their attempts went."""

from __future__ import annotations

from reconciler.analysis.backtest.history_file import RecordedJob
from reconciler.api.payloads import Payload
from solver.model.quantities import Instant


class RecordedJobList(Payload, frozen=True, kw_only=True):
    """Jobs, newest first, as of an instant. `next`: the cursor of the page after this one; "": there is none."""

    items: tuple[RecordedJob, ...]
    at: Instant
    next: str = ""
