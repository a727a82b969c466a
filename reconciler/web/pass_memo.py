"""What pages read and work out of one pass, each thing once, however many look."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, Final, TypeVar

from reconciler.api.services import Services
from solver.model.snapshot import Snapshot

KEPT_MAX: Final = 100

T = TypeVar("T")


class PassMemo:
    """Of one server. Any thread may ask; one works, the others wait for what it finds."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._working = Lock()
        self._of: Snapshot | None = None
        self._known: OrderedDict[Hashable, Any] = OrderedDict()

    def of(self, key: Hashable, work: Callable[[], T]) -> T:
        """What is known under this key, as of the last pass. Raises NotReadyError, and what the work does."""
        snapshot = self._services.snapshot()
        with self._working:
            if self._of is not snapshot:
                self._known.clear()
                self._of = snapshot
            if key not in self._known:
                self._known[key] = work()
                if len(self._known) > KEPT_MAX:
                    self._known.popitem(last=False)
            found: T = self._known[key]
            return found
