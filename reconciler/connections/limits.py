"""How many connections a process can bear: its limit of open files, less what store, Git and backend need."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from typing import Final

DESCRIPTORS_KEPT_MIN: Final = 256
"""Kept back from connections. A control plane at rest has about 20 open; 40 threads on SQLite, a fetch of Git and a round that
starts gangs need some 200 more."""

DESCRIPTORS_KEPT_MAX: Final = 2_048

CONNECTIONS_MAX: Final = 1_024
"""Of the API, unless stated. Each costs memory, too: a body has up to 1 MB, and that of a webhook is read before it is known
whose it is."""

API_SHARE_MAX: Final = 4
"""Beside agents the API has no more than one part in so many: each node has a connection for as long as it runs."""


class ConnectionLimitsError(Exception):
    """More connections are asked for than this process can have. A person must act."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """`connections_max`: at once. `per_peer_max`: of those, from one address."""

    connections_max: int
    per_peer_max: int


@dataclass(frozen=True, slots=True)
class RequestTimeouts:
    """`header_s`: until the header of a request is complete. `body_s`: until its body is, and longer as that comes. `idle_s`:
    between two requests.
    """

    header_s: float = 10.0
    body_s: float = 20.0
    idle_s: float = 75.0


USUAL_TIMEOUTS: Final = RequestTimeouts()


def descriptors_for_connections() -> int:
    """What RLIMIT_NOFILE leaves once the others have theirs."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY:
        most = 2**20
    kept = min(max(DESCRIPTORS_KEPT_MIN, most // 4), DESCRIPTORS_KEPT_MAX)
    return most - min(kept, most // 2)


def api_limits(
    connections_max: int | None = None, per_peer_max: int | None = None, *, beside_agents: bool = False
) -> ConnectionLimits:
    """Of the API. None: as many as this process can bear, and half of them for one peer. Raises ConnectionLimitsError."""
    able = descriptors_for_connections()
    if beside_agents:
        able = min(able // API_SHARE_MAX, CONNECTIONS_MAX)
    if connections_max is not None and connections_max > able:
        raise ConnectionLimitsError(
            f"--connections-max {connections_max}: of the files that this process may open (ulimit -n), {able} are left for "
            "the API. Ask for fewer, or raise the limit (LimitNOFILE= of a systemd unit)"
        )
    most = connections_max or min(able, CONNECTIONS_MAX)
    return ConnectionLimits(most, min(per_peer_max or max(most // 2, 1), most))


def agents_limits() -> ConnectionLimits:
    """Of the door for agents. Those that are known count for no peer: a site's may all come from one address."""
    most = descriptors_for_connections() - api_limits(beside_agents=True).connections_max
    return ConnectionLimits(most, max(most // 2, 1))
