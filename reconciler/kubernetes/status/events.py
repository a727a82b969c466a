"""Writes Events (events.k8s.io/v1) about pods and nodes, a few in each pass."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from reconciler.kubernetes.client.api import Api, Check
from reconciler.kubernetes.client.refusals import (
    ConflictError,
    NotFoundError,
    RefusedError,
    TooManyRequestsError,
)
from reconciler.kubernetes.objects.resource import Resource
from reconciler.kubernetes.status.occurrences import Occurrence, Regarding
from reconciler.kubernetes.status.series import Book, Series
from reconciler.kubernetes.status.writes import WriteCount, all_of
from reconciler.model.clock import Clock
from solver.model.quantities import Instant

EVENTS: Final = Resource("events.k8s.io/v1", "events")
CONTROLLER: Final = "quorate.dev/scheduler"
WRITES_MAX: Final = 50
"""Events written in one go."""
NOTE_MAX: Final = 1024
"""Bytes of a note, by the API's validation; an instance may have 128."""
OF_THE_CLUSTER: Final = "default"
"""The namespace of Events about objects without one, as Kubernetes' own components have it."""


class Events:
    """`instance` names the writer, such as the Lease's holder."""

    def __init__(self, api: Api, check: Check, clock: Clock, instance: str, book: Book | None = None) -> None:
        self._api = api
        self._check = check
        self._clock = clock
        self._instance = instance[:128]
        self._book = book or Book()

    @property
    def dropped(self) -> int:
        """Of what happened, that of which no Event was or will be made, since it was too much."""
        return self._book.dropped

    def happened(self, occurrences: Iterable[Occurrence]) -> None:
        """They are written by the next passes."""
        self._book.happened(occurrences, self._clock.now())

    async def tell(self, budget: int = WRITES_MAX) -> WriteCount:
        """Writes what is due. Raises NotLeaderError and KubernetesError; what was not written then is due again."""
        due = self._book.due(self._clock.now(), budget)
        arrived = await all_of(self._write(series) for series in due)
        return WriteCount(arrived, self._book.left)

    async def _write(self, series: Series) -> bool:
        count, now = series.count, self._clock.now()
        namespace = series.occurrence.regarding.namespace or OF_THE_CLUSTER
        try:
            if series.written:
                body = {"series": {"count": count, "lastObservedTime": _micro(series.last)}}
                await self._api.patch(EVENTS.path(namespace, series.name), body, self._check)
            else:
                count = 1
                await self._api.create(EVENTS.path(namespace), _event(series, namespace, self._instance), self._check)
        except NotFoundError:  # it has expired
            self._book.lost(series)
            return False
        except ConflictError:  # sent before, with an answer that never came
            series.wrote(1, now)
            return False
        except TooManyRequestsError:
            raise
        except RefusedError:  # it never will be taken, as in a namespace that is going
            self._book.lost(series)
            raise
        series.wrote(count, now)
        return True


def _event(series: Series, namespace: str, instance: str) -> dict[str, Any]:
    said: Occurrence = series.occurrence
    return {
        "metadata": {"name": series.name, "namespace": namespace},
        "eventTime": _micro(series.first),
        "reportingController": CONTROLLER,
        "reportingInstance": instance,
        "action": said.action,
        "reason": said.reason,
        "regarding": _reference(said.regarding),
        **({"related": _reference(said.related)} if said.related else {}),
        "note": _within(said.note),
        "type": "Warning" if said.warning else "Normal",
    }


def _reference(to: Regarding) -> dict[str, str]:
    namespace = {"namespace": to.namespace} if to.namespace else {}
    return {"apiVersion": to.api_version, "kind": to.kind, "name": to.name, "uid": to.uid, **namespace}


def _micro(at: Instant) -> str:
    """Kubernetes' MicroTime, which wants six digits."""
    return f"{str(at.after(-(at % 1000)))[:-1]}.{at % 1000:03}000Z"


def _within(note: str) -> str:
    sent = note.encode()
    return note if len(sent) <= NOTE_MAX else f"{sent[: NOTE_MAX - 3].decode(errors='ignore')}..."
