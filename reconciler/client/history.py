"""The past, as a server has it on record, for programs."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.api.history_payloads import RecordedJobList
from reconciler.client.transport import Transport
from solver.model.document import decode


class PastCalls:
    """Every method raises ServerUnreachableError, NotAuthorisedError or ApiError."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def page(self, cursor: str = "", limit: int = 200) -> RecordedJobList:
        """A page of the newest jobs with their attempts; `next` is the cursor of the one after it."""
        params: dict[str, str | int] = {"limit": limit, **({"cursor": cursor} if cursor else {})}
        return decode(self._transport.call("GET", "/v1/history", params=params), RecordedJobList)

    def pages(self) -> Iterator[RecordedJobList]:
        """All of them, newest jobs first."""
        page = self.page()
        yield page
        while page.next:
            page = self.page(page.next)
            yield page
