"""What is written on pods of what was asked of their gang and promised to it: the only memory that outlives a process."""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Iterator, Mapping
from typing import Final, TypeVar

import msgspec

from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.pod_view import as_view
from reconciler.kubernetes.objects.wire import Pod
from solver.model.document import Document, decode, encode
from solver.model.inflight import Intent, Reservation
from solver.model.quantities import Duration

T = TypeVar("T", bound=Document)

PLAIN_MAX: Final = 1_024
"""Bytes up to which a record stays readable for people. A pod has room for 256 KiB of annotations: 512 tasks are 60 KiB of JSON."""
READ_MAX: Final = 8 * 2**20
"""Bytes that a record may unfold to: a client that may write annotations could have written one that never ends."""
_WRITTEN: Final = {names.EVICT, names.PROMISE}
_PACKED: Final = "z:"


class UnreadableRecordError(ValueError):
    """An annotation is no record; the message says why."""


class PodRecord(Document, frozen=True):
    """`uid`: of the pod that it was written on, so that a copy of its annotations is none."""

    uid: str


R = TypeVar("R", bound=PodRecord)


class EvictionRecord(PodRecord, frozen=True):
    """The gang of this pod was asked to leave (a `stop`), or some of its pods were (a `shrink`); `why` says it to people.

    `leaving`: the pods that a shrink means, by their uids: numbers of tasks change when a gang loses one. `count`: how many
    pods were to leave when the first was told to. `limit`: its time limit, where the gang is to leave because that is over at the
    intent's deadline, and not before. `past`: PodDisruptionBudgets that have held it for as long as they may.
    """

    intent: Intent
    why: str = ""
    leaving: tuple[str, ...] = ()
    count: int = 0
    limit: Duration | None = None
    past: str = ""

    @property
    def asks_to_save(self) -> bool:
        """A pod that can is to save its work before it leaves."""
        return self.intent.sends_back or self.limit is not None


class NominationRecord(PodRecord, frozen=True):
    """What the gang of this pod was promised, and what is kept for it."""

    intent: Intent | None = None
    reservation: Reservation | None = None


def written(record: Document) -> str:
    """The record as an annotation's value: JSON, packed where it is long."""
    plain = encode(record)
    if len(plain) <= PLAIN_MAX:
        return plain.decode()
    return _PACKED + base64.b64encode(zlib.compress(plain, 9)).decode()


def read_record(value: str, kind: type[T]) -> T:
    """The inverse of `written`; raises UnreadableRecordError."""
    try:
        return decode(_unpacked(value) if value.startswith(_PACKED) else value, kind)
    except (msgspec.MsgspecError, ValueError, zlib.error, binascii.Error) as error:
        raise UnreadableRecordError(str(error)) from error


def _unpacked(value: str) -> bytes:
    unfolding = zlib.decompressobj()
    plain = unfolding.decompress(base64.b64decode(value.removeprefix(_PACKED), validate=True), READ_MAX)
    if not unfolding.eof:
        raise UnreadableRecordError(f"it is cut off, or longer than {READ_MAX} bytes")
    return plain


def marked_pods(pods: Mapping[tuple[str, str], Pod]) -> set[tuple[str, str]]:
    """The pods on which something is written, be it believed or not: few of many."""
    noted = as_view(pods).noted
    return {key for key, pod in noted.items() if not pod.metadata.annotations.keys().isdisjoint(_WRITTEN)}


def eviction_record_on(pod: Pod) -> EvictionRecord | None:
    """What was asked of the pod's gang, as far as this pod says; None: nothing that is to be believed."""
    return _on(pod, names.EVICT, EvictionRecord)


def promise_on(pod: Pod) -> NominationRecord | None:
    """What was promised to the pod's gang, as far as this pod says; None: nothing that is to be believed."""
    return _on(pod, names.PROMISE, NominationRecord)


def doubts_on(pod: Pod) -> Iterator[str]:
    """Why something that is written on the pod is not believed."""
    for key, kind in ((names.EVICT, EvictionRecord), (names.PROMISE, NominationRecord)):
        try:
            _believed(pod, key, kind)
        except UnreadableRecordError as error:
            yield f"{key} of pod {pod.metadata.name}: {error}"


def _on(pod: Pod, key: str, kind: type[R]) -> R | None:
    try:
        return _believed(pod, key, kind)
    except UnreadableRecordError:
        return None  # doubts_on says why


def _believed(pod: Pod, key: str, kind: type[R]) -> R | None:
    value = pod.metadata.annotations.get(key)
    if value is None:
        return None
    record = read_record(value, kind)
    if record.uid != pod.metadata.uid:
        raise UnreadableRecordError("it was written for another pod")
    return record
