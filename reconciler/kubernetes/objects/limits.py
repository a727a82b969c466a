"""How long the pods of a gang may run: what they say themselves, what was fixed when they were bound, and since when it counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.remarks import Refusal
from reconciler.kubernetes.objects.wire import Meta, Pod, instant_of
from solver.model.quantities import Duration, Instant

LONGEST: Final = Duration(100 * 365 * 86_400_000)
"""What is written of a pod is for ever beyond it: the times that follow from it can still be written down and read again."""


def own_limit(pod: Pod) -> Duration | None:
    """The shortest of what the pod says in one way or another; None: nothing.

    `activeDeadlineSeconds` its kubelet keeps as well, for this pod alone; Kueue's label is not kept where Kueue is not.
    """
    seconds = pod.spec.active_deadline_seconds, _number(pod.metadata.labels.get(names.KUEUE_SECONDS))
    limits = [Duration(known * 1000) for known in seconds if known]
    said = _read(names.label_or_annotation(pod.metadata, names.TIME_LIMIT))
    shortest = min([*limits, *([said] if said else [])], default=None)
    return shortest and min(shortest, LONGEST)


def limit_refusals(meta: Meta) -> Iterator[Refusal]:
    """A limit that can't be read can't be kept."""
    written = names.label_or_annotation(meta, names.TIME_LIMIT)
    if written and not _read(written):
        message = f"{names.TIME_LIMIT} is no duration: {written!r}"
        yield Refusal("unreadable-time-limit", message, f"Write {names.TIME_LIMIT}: 90m, 12h or 3d.")


def limit_of(pods: Iterable[Pod], own: Duration | None) -> Duration | None:
    """How long a gang may run in this attempt: what was written when it was bound, else its `own` limit; None: for ever.

    `pods`: those that are on nodes. Without the fence any client could have written it: what can't be read is not believed.
    """
    fixed = [known for pod in pods if (known := _read(pod.metadata.annotations.get(names.LIMIT, "")))]
    return min(fixed, default=own)


def began_at(pods: Iterable[Pod]) -> Instant | None:
    """Since when a gang runs: its oldest pod's start, by its kubelet, as `activeDeadlineSeconds` counts. None: it does not yet.

    `pods`: those that are on nodes. A pod that joins, or takes another's place, does not make its gang any younger.
    """
    return min((instant_of(pod.status.start_time) for pod in pods if pod.status.start_time), default=None)


def _read(written: str) -> Duration | None:
    """None: nothing that could be kept."""
    try:
        return min(Duration.parse(written), LONGEST) or None if written else None
    except ValueError:
        return None


def _number(written: str | None) -> int | None:
    return int(written) if written and written.isdecimal() and len(written) <= 12 else None
