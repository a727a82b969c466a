"""How far a control plane of pods follows its cluster, kind by kind, and what the log says of that."""

from __future__ import annotations

import asyncio
from typing import Final

from structlog.typing import FilteringBoundLogger

from reconciler.kubernetes.client.kind_watch import WatchState
from reconciler.kubernetes.client.pace import Sleep
from reconciler.kubernetes.control.cluster_cache import ClusterCache
from reconciler.model.watch_status import FollowedKind, behind

LOOK_EVERY_S: Final = 30.0
"""How often it is looked whether a kind is behind."""


def followed_in(mirror: ClusterCache) -> tuple[FollowedKind, ...]:
    """How far each kind is followed."""
    return tuple(map(_kind, mirror.standing()))


def _kind(known: WatchState) -> FollowedKind:
    is_absent = known.absent and not known.needed
    return FollowedKind(
        kind=known.resource.plural,
        version=known.resource.version,
        is_needed=known.needed,
        objects=known.objects,
        listed_at=known.listed_at,
        silent_s=known.silent_s,
        breaks=known.breaks,
        is_absent=is_absent,
        problem="" if is_absent else known.problem,
    )


async def say_what_is_behind(mirror: ClusterCache, log: FilteringBoundLogger, sleep: Sleep = asyncio.sleep) -> None:
    """For ever, in the log: once when a kind falls behind, and once when it is followed again."""
    said: set[str] = set()
    while True:
        await sleep(LOOK_EVERY_S)
        now = {kind.kind: kind for kind in behind(followed_in(mirror))}
        for name in sorted(now.keys() - said):
            log.warning("kind-behind", resource=name, message=now[name].state)
        for name in sorted(said - now.keys()):
            log.info("kind-followed-again", resource=name)
        said = set(now)
