"""What pages read and work out, each thing once, however many look."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, Final, TypeVar

from reconciler.api.services import Services
from solver.model.snapshot import Snapshot

KEPT_MAX: Final = 100

T = TypeVar("T")


class Memo:
    """What is known under a key stays known; the oldest goes. Any thread may ask; one works, the others wait for what it finds."""

    def __init__(self) -> None:
        self._working = Lock()
        self._known: OrderedDict[Hashable, Any] = OrderedDict()

    def of(self, key: Hashable, work: Callable[[], T]) -> T:
        """What is known under this key. Raises what the work does."""
        with self._working:
            return self._found(key, work)

    def _found(self, key: Hashable, work: Callable[[], T]) -> T:
        if key not in self._known:
            self._known[key] = work()
            if len(self._known) > KEPT_MAX:
                self._known.popitem(last=False)
        found: T = self._known[key]
        return found


class PassMemo(Memo):
    """What is known of one pass: with the next one it is worked out anew."""

    def __init__(self, services: Services) -> None:
        super().__init__()
        self._services = services
        self._of: Snapshot | None = None

    def of(self, key: Hashable, work: Callable[[], T]) -> T:
        """As of the last pass. Raises NotReadyError, and what the work does."""
        snapshot = self._services.snapshot()
        with self._working:
            if self._of is not snapshot:
                self._known.clear()
                self._of = snapshot
            return self._found(key, work)
