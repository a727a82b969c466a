"""What the first binding of a gang says of all of them, so that the next leader can finish or undo what was begun."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

import msgspec

from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.wire import Pod
from solver.model.cluster import DeviceId, NodeName
from solver.model.quantities import Duration, Instant, MilliGpu
from solver.model.workload import JobName

PLAIN_MAX = 512
"""Bytes of JSON above which it is compressed: below, people can read it with kubectl, and it gains little."""
WRITTEN_MAX = 192 * 1024
"""An object may have 256 KiB of annotations, others' among them."""
_READ_MAX = 8 * 1024 * 1024
_COMPRESSED = "z:"


class PodBinding(NamedTuple):
    """Where one pod goes, and what it holds there: `share` and `sharing` say how it has its only device beside others.

    `needs`: with how many of its gang it is bound.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    node: NodeName
    devices: tuple[DeviceId, ...] = ()
    share: MilliGpu | None = None
    sharing: str | None = None
    needs: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.namespace, self.name


class GangBinding(NamedTuple):
    """The pods of a job's start, or those of them that are still to be bound. `limit`: how long it may run; None: for ever."""

    job: JobName
    attempt: int
    pods: tuple[PodBinding, ...]
    limit: Duration | None = None


class StartJournal(NamedTuple):
    """A gang's start as it was decided at `at`, by the clock of its leader. Pods have no resourceVersion there."""

    job: JobName
    attempt: int
    at: Instant
    pods: tuple[PodBinding, ...]
    limit: Duration | None = None


class JournalTooLongError(ValueError):
    """No pod can hold it. A person acts: the gang has too many pods; split it into several."""


class JournalUnreadableError(ValueError):
    """Another program has written it, or another version. A person acts: delete the annotation, or the pods of the gang."""


class _Pod(msgspec.Struct, frozen=True, array_like=True):
    name: str
    uid: str
    node: str
    devices: tuple[str, ...]
    share: int | None = None
    sharing: str | None = None
    needs: str = ""


class _Written(msgspec.Struct, frozen=True):
    job: str
    attempt: int
    at: int
    namespace: str
    pods: tuple[_Pod, ...]
    limit: int | None = None


_DECODER = msgspec.json.Decoder(_Written)


def journal_of(gang: GangBinding, at: Instant) -> StartJournal:
    """What is to be remembered of it."""
    pods = tuple(pod._replace(resource_version="") for pod in gang.pods)
    return StartJournal(gang.job, gang.attempt, at, pods, gang.limit)


def written(journal: StartJournal) -> str:
    """As an annotation. Raises JournalTooLongError."""
    pods = tuple(
        _Pod(pod.name, pod.uid, pod.node, _shortened(pod), _plain_share(pod), pod.sharing, pod.needs)
        for pod in journal.pods
    )
    limit = None if journal.limit is None else int(journal.limit)
    record = _Written(journal.job, journal.attempt, int(journal.at), journal.pods[0].namespace, pods, limit)
    plain = msgspec.json.encode(record)
    text = plain.decode() if len(plain) <= PLAIN_MAX else _COMPRESSED + base64.b64encode(zlib.compress(plain)).decode()
    if len(text) > WRITTEN_MAX:
        message = f"{journal.job}: the plan of {len(pods)} pods takes {len(text)} bytes, an annotation {WRITTEN_MAX}"
        raise JournalTooLongError(f"{message}. Split the gang into several")
    return text


def _plain_share(pod: PodBinding) -> int | None:
    return None if pod.share is None else int(pod.share)


@lru_cache(maxsize=4096)
def read(text: str) -> StartJournal:
    """The journal in an annotation. Raises JournalUnreadableError."""
    try:
        record = _DECODER.decode(_plain(text))
    except (ValueError, zlib.error) as error:
        raise JournalUnreadableError(f"{names.GANG_PLAN}: {error}") from error
    pods = tuple(
        PodBinding(
            record.namespace, pod.name, pod.uid, "", NodeName(pod.node), _lengthened(pod),
            None if pod.share is None else MilliGpu(pod.share), pod.sharing, pod.needs,
        )
        for pod in record.pods
    )  # fmt: skip
    if not pods:
        raise JournalUnreadableError(f"{names.GANG_PLAN}: names no pods")
    limit = None if record.limit is None else Duration(record.limit)
    return StartJournal(JobName(record.job), record.attempt, Instant(record.at), pods, limit)


def hold_annotations(pod: PodBinding, of: GangBinding | StartJournal) -> dict[str, str]:
    """The annotations that say what a pod of this start holds, and for how long at most."""
    said = {names.ATTEMPT: str(of.attempt)}
    if of.limit is not None:
        said[names.LIMIT] = str(of.limit)
    if pod.devices:
        said[names.DEVICES] = ",".join(pod.devices)
    if pod.share is not None:
        said[names.SHARE] = str(pod.share)
    if pod.sharing:
        said[names.SHARING] = pod.sharing
    if pod.needs:
        said[names.NEEDS] = pod.needs
    return said


def is_there(pod: Pod, binding: PodBinding, said: Mapping[str, str]) -> bool:
    """Whether a pod is bound as this says, with these annotations; by what does not matter."""
    notes = pod.metadata.annotations
    return pod.spec.node_name == binding.node and all(notes.get(key) == value for key, value in said.items())


def _plain(text: str) -> bytes:
    if not text.startswith(_COMPRESSED):
        return text.encode()
    # Bounded: where no fence is installed, any client may have written it.
    unpacked = zlib.decompressobj().decompress(base64.b64decode(text.removeprefix(_COMPRESSED)), _READ_MAX)
    if len(unpacked) == _READ_MAX:
        raise ValueError(f"more than {_READ_MAX} bytes")
    return unpacked


def _shortened(pod: PodBinding) -> tuple[str, ...]:
    """Devices are called after their node (`n1/0`), which is said already; one that is not is written whole, after `=`."""
    own = f"{pod.node}/"
    return tuple(device[len(own) - 1 :] if device.startswith(own) else f"={device}" for device in pod.devices)


def _lengthened(pod: _Pod) -> tuple[DeviceId, ...]:
    return tuple(DeviceId(text[1:] if text.startswith("=") else pod.node + text) for text in pod.devices)
