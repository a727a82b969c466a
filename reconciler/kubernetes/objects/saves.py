"""How the pods of a gang save their work, by what is written on them: how often, how long it takes, and when they last did."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, TypeVar

from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.limits import LONGEST
from reconciler.kubernetes.objects.remarks import Remark
from reconciler.kubernetes.objects.wire import Meta, Pod
from solver.model.quantities import Duration, Instant, Quantity
from solver.model.workload import Checkpoint

Q = TypeVar("Q", bound=Quantity)

ONLY_WHEN_ASKED: Final = LONGEST
"""The interval of a gang that states none: all that it has done since it began counts as lost."""
TERMINATION: Final = Duration(30_000)
"""What the API server gives a pod that states no terminationGracePeriodSeconds: between the request to end and the kill."""

_DECLARING: Final = (names.CHECKPOINT_INTERVAL, names.CHECKPOINT_GRACE, names.CHECKPOINT_HOOK)


class HttpHook(NamedTuple):
    """A pod is asked by HTTP to save its work: at a port and a path of its own, and of no other."""

    port: int
    path: str


class ExecHook(NamedTuple):
    """A pod saves its work by a command, without a shell around it, in its main container."""

    command: tuple[str, ...]


Hook = HttpHook | ExecHook


def saves(meta: Meta) -> bool:
    """The pod says that it can save its work, and is asked to before it has to leave."""
    return any(key in meta.annotations for key in _DECLARING)


def hook_of(pod: Pod) -> Hook | None:
    """How the pod is to be asked; None: it is not, or in a way that is not followed (`save_remarks`)."""
    kind, _, rest = pod.metadata.annotations.get(names.CHECKPOINT_HOOK, "").partition(":")
    match kind:
        case "http" if not pod.spec.host_network:
            return _http(rest)
        case "exec":
            return _exec(rest)
        case _:
            return None


def _http(rest: str) -> HttpHook | None:
    port, slash, path = rest.partition("/")
    if not slash or not (port.isascii() and port.isdecimal() and len(port) < 6 and 0 < int(port) < 65_536):
        return None
    is_plain = all(sign.isascii() and (sign.isalnum() or sign in "/-._~") for sign in path)
    return HttpHook(int(port), "/" + path) if is_plain else None


def _exec(rest: str) -> ExecHook | None:
    try:
        command = shlex.split(rest)
    except ValueError:  # a quotation that does not end
        return None
    return ExecHook(tuple(command)) if command else None


def main_container(pod: Pod) -> str:
    """The one that kubectl takes: that of its annotation, if there is such a one, else the first."""
    named = [one.name for one in pod.spec.containers]
    said = pod.metadata.annotations.get(names.DEFAULT_CONTAINER, "")
    return said if said in named else named[0]


def checkpointed_at(meta: Meta) -> Instant | None:
    """Until when the pod's work is saved, as far as it says."""
    return _read(Instant, meta, names.CHECKPOINTED)


def termination_of(pod: Pod) -> Duration:
    """How long the pod has between being asked to end and being made to."""
    stated = pod.spec.termination_grace_period_seconds
    return TERMINATION if stated is None else min(Duration(max(0, stated) * 1000), LONGEST)


def checkpoint_of(pods: Iterable[Pod]) -> Checkpoint | None:
    """How the gang saves: the longest of what its pods state. None: it does not, and ends as fast as any pod.

    One that saves nothing and asks for more than the usual time to end is given that.
    """
    everybody = tuple(pods)
    saving = [pod for pod in everybody if saves(pod.metadata)]
    intervals = [_span(pod.metadata, names.CHECKPOINT_INTERVAL) or ONLY_WHEN_ASKED for pod in saving]
    graces = [grace for pod in saving if (grace := _span(pod.metadata, names.CHECKPOINT_GRACE)) is not None]
    graces += [ends for pod in everybody if (ends := termination_of(pod)) > TERMINATION]
    if not saving and not graces:
        return None
    return Checkpoint(max(intervals, default=ONLY_WHEN_ASKED), max(graces, default=None))


def saved_at(pods: Iterable[Pod], started_at: Instant | None) -> Instant | None:
    """Until when the work of a gang that runs is saved: when the last of those that save did. None: not known."""
    times = [checkpointed_at(pod.metadata) for pod in pods if saves(pod.metadata)]
    if started_at is None or not any(times):
        return None
    return max(started_at, min(time or started_at for time in times))


def save_remarks(pods: Iterable[Pod]) -> Iterator[Remark]:
    """What is written and can't be read."""
    for pod in pods:
        meta = pod.metadata
        for key in (names.CHECKPOINT_INTERVAL, names.CHECKPOINT_GRACE):
            if key in meta.annotations and _span(meta, key) is None:
                yield Remark("checkpoint-unreadable", f"{key} is not followed: it is no duration such as 5m")
        if names.CHECKPOINTED in meta.annotations and checkpointed_at(meta) is None:
            yield Remark("checkpoint-unreadable", f"{names.CHECKPOINTED} is not followed: it is no time with its zone")
        if names.CHECKPOINT_HOOK in meta.annotations and hook_of(pod) is None:
            message = f"{names.CHECKPOINT_HOOK} is not followed: it is neither exec:COMMAND nor http:PORT/PATH"
            host = ", which a pod with hostNetwork can't have" if pod.spec.host_network else " (letters, digits, -._~/)"
            yield Remark("checkpoint-hook", message + host)


def _span(meta: Meta, key: str) -> Duration | None:
    written = _read(Duration, meta, key)
    return None if written is None else min(written, LONGEST)


def _read(kind: type[Q], meta: Meta, key: str) -> Q | None:
    try:
        return kind.parse(meta.annotations[key]) if key in meta.annotations else None
    except ValueError:
        return None
