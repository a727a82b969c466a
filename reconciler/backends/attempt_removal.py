"""Forgets attempts one by one, for backends that wait for nobody."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from reconciler.protocols.backend import AttemptKey, BackendUnreachableError, Epoch
from solver.model.workload import JobName


def forget_each(
    forget: Callable[[JobName, int, Epoch], None], over: Iterable[AttemptKey], epoch: Epoch
) -> dict[AttemptKey, str]:
    """Those of which it is not known whether they are forgotten, and why. Raises what else `forget` does."""
    unknown = {}
    for job, attempt in over:
        try:
            forget(job, attempt, epoch)
        except BackendUnreachableError as why:
            unknown[job, attempt] = str(why)
    return unknown
