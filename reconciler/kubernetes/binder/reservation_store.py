"""What Reservation documents keep, which no pod stands for: one entry each of a ConfigMap in Quorate's own namespace."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from structlog.typing import FilteringBoundLogger

from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.fencing import LeaderSource
from reconciler.kubernetes.client.refusals import ConflictError, NotFoundError
from reconciler.kubernetes.objects.resource import Resource
from solver.model.document import decode, encode
from solver.model.inflight import Reservation, declared_name

CONFIG_MAPS: Final = Resource("v1", "configmaps")
NAME: Final = "quorate-reservations"


class DeclaredStore:
    """Reads and writes that ConfigMap. One that is missing keeps nothing: rounds then choose anew, and write it.

    A leader reads it once, and after its own writes: nothing else writes it.
    """

    def __init__(self, api: Api, leading: LeaderSource, namespace: str, log: FilteringBoundLogger) -> None:
        self._api = api
        self._leading = leading
        self._namespace = namespace
        self._log = log
        self._kept: tuple[Reservation, ...] = ()
        self._read_as: dict[str, str] = {}

    async def kept(self) -> tuple[Reservation, ...]:
        """What is kept, sorted by holder. Raises KubernetesError, NotLeaderError."""
        stamp = self._leading.leadership().stamp
        if stamp != self._read_as:
            self._kept, self._read_as = await self.read(), stamp
        return self._kept

    async def read(self) -> tuple[Reservation, ...]:
        """What is kept, sorted by holder; raises KubernetesError. An entry that can't be read is told, and chosen anew."""
        try:
            found = await self._api.get(CONFIG_MAPS.path(self._namespace, NAME), dict[str, Any])
        except NotFoundError:
            return ()
        kept = []
        for name, value in sorted((found.get("data") or {}).items()):
            try:
                reservation = decode(value, Reservation)
            except (msgspec.MsgspecError, ValueError) as error:
                self._log.warning("reservation-unreadable", reservation=name, error=str(error))
                continue
            if _key(declared_name(reservation.holder) or "") == name:
                kept.append(reservation)
        return tuple(kept)

    async def write(self, name: str, reservation: Reservation | None) -> None:
        """This is what the document of that name keeps; None: nothing. Raises KubernetesError, NotLeaderError."""
        data = {_key(name): None if reservation is None else encode(reservation).decode()}
        self._read_as = {}
        try:
            await self._patch(data)
        except NotFoundError:
            if reservation is not None:
                await self._create()
                await self._patch(data)

    async def _patch(self, data: dict[str, str | None]) -> None:
        body = {"metadata": {"annotations": self._leading.leadership().stamp}, "data": data}
        await self._api.patch(CONFIG_MAPS.path(self._namespace, NAME), body, self._leading.leadership)

    async def _create(self) -> None:
        body = {"metadata": {"name": NAME, "annotations": self._leading.leadership().stamp}}
        try:
            await self._api.create(CONFIG_MAPS.path(self._namespace), body, self._leading.leadership)
        except ConflictError:
            self._log.debug("reservations-there", namespace=self._namespace)  # another was faster


def _key(name: str) -> str:
    """The entry of a document, or of one of its windows: keys of a ConfigMap have neither `@` nor `:`."""
    return name.replace("@", ".").replace(":", "")
