"""The map of the last pass as it is sent: made once for a pass, whoever asks; and what a pass changed of it."""

from __future__ import annotations

import gzip
import hashlib
from functools import cached_property
from threading import Lock

from reconciler.api.services import Services
from reconciler.web.cluster_map import ClusterMap, Suspects, map_of, suspects_of
from solver.model.document import encode
from solver.model.snapshot import Snapshot
from solver.policy.policy import Policy


class PackedMap:
    """The map of a snapshot under a policy. `tag` names its content."""

    def __init__(self, snapshot: Snapshot, policy: Policy, suspects: Suspects = frozenset()) -> None:
        self.snapshot, self.policy = snapshot, policy
        self.columns: ClusterMap = map_of(snapshot, policy, suspects)
        self._text = encode(self.columns)
        self.tag = f'"{hashlib.sha256(self._text).hexdigest()[:20]}"'

    @cached_property
    def packed(self) -> bytes:
        """As it is sent whole."""
        return gzip.compress(self._text, 6, mtime=0)


class LatestMap:
    """Any thread may ask."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._packing = Lock()
        self._made: PackedMap | None = None

    def now(self) -> PackedMap:
        """Of the last pass, under the policy in force. Raises NotReadyError, NoPolicyError, StoreUnusableError."""
        snapshot, (_, policy) = self._services.snapshot(), self._services.policy()
        with self._packing:
            made = self._made
            if made is None or made.snapshot is not snapshot or made.policy is not policy:
                suspects = suspects_of(self._services.health.all())
                self._made = made = PackedMap(snapshot, policy, suspects)
            return made
