"""Bugs that only a network, a machine or a disk that fails shows: a harness that finds none of them would prove nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import ExitStack
from typing import Any, Final
from unittest import mock

from hack.agents.run import CLOCKS, FAULTS, NETWORK, Fault, run_seed
from hack.crash.bugs import devices_are_released_before_the_stop_is_confirmed
from reconciler.backends.baremetal.fleet import Fleet
from reconciler.backends.baremetal.merge import FleetView
from reconciler.lifecycle.jobs import gang_stop
from reconciler.lifecycle.jobs.claim_context import ClaimContext
from reconciler.model.cluster_clock import ClusterClock, HeardClock
from reconciler.protocols.backend import AttemptStopped, BackendChanges, Cursor
from solver.model.cluster import NodeName

Patches = Iterable[Any]
SEEDS_MAX: Final = 40


def a_silent_node_is_given_up_at_once() -> Patches:
    """As soon as it is not ready, though what runs there goes on."""

    def is_lost(view: FleetView, name: NodeName) -> bool:
        return bool(view._silent.get(name, 0) >= view._patience.lease)

    yield mock.patch.object(FleetView, "_is_lost", is_lost)


def what_was_not_told_yet_counts_as_gone() -> Patches:
    """An agent that has just connected is taken for one that has told everything."""
    connected = Fleet.connected

    def at_once(fleet: Fleet, node: NodeName, address: str) -> None:
        connected(fleet, node, address)
        fleet.told(node, BackendChanges(Cursor(0)), whole=True)

    yield mock.patch.object(Fleet, "connected", at_once)


def what_an_agent_has_forgotten_is_waited_for() -> Patches:
    """As it was: a task that its agent does not know of runs for ever."""
    yield mock.patch.object(FleetView, "_tasks", _without_forgotten(FleetView._tasks))


def a_stop_on_one_node_counts_for_all() -> Patches:
    """The gang's other nodes may not have heard of it."""

    def stopped(view: FleetView) -> Iterable[AttemptStopped]:
        for heard in view._nodes.values():
            yield from heard.told.stopped.values()

    yield mock.patch.object(FleetView, "_stopped", stopped)


def a_stop_is_sent_once() -> Patches:
    """One that a link has lost is not sent again."""
    sound = gang_stop.resent
    yield mock.patch.object(gang_stop, "resent", lambda holding, kind: () if kind == "stop" else sound(holding, kind))


def a_time_limit_counts_by_the_clock_of_a_node() -> Patches:
    """It says when its tasks began, and its clock may be an hour behind."""
    yield mock.patch.object(ClaimContext, "when", lambda _, told: told)


def a_time_limit_counts_by_the_clock_of_a_leader() -> Patches:
    """It may be set while jobs run, and another leads with another one."""
    yield mock.patch.object(HeardClock, "hear", return_value=None)
    yield mock.patch.object(ClusterClock, "now", lambda clock: clock.wall.now())


def the_cluster_counts_on_from_whatever_the_clock_says() -> Patches:
    """Whoever comes to lead takes the time of its own machine, though it goes on by the monotonic clock then."""
    yield mock.patch.object(HeardClock, "hear", return_value=None)


NODE_CLOCKS: Final[tuple[Fault, ...]] = ("node-clock-set",)

BUGS: dict[Callable[[], Patches], Collection[Fault]] = {
    a_silent_node_is_given_up_at_once: NETWORK,
    what_was_not_told_yet_counts_as_gone: NETWORK,
    what_an_agent_has_forgotten_is_waited_for: FAULTS,
    a_stop_on_one_node_counts_for_all: FAULTS,
    a_stop_is_sent_once: NETWORK,
    devices_are_released_before_the_stop_is_confirmed: NETWORK,
    a_time_limit_counts_by_the_clock_of_a_node: NODE_CLOCKS,
    a_time_limit_counts_by_the_clock_of_a_leader: CLOCKS,
    the_cluster_counts_on_from_whatever_the_clock_says: ("plane-clock-set", "plane-dies"),
}
"""And what befalls the cluster where it is looked for."""


def caught_by(bug: Callable[[], Patches], seeds: Iterable[int] = range(SEEDS_MAX)) -> tuple[int, str] | None:
    """The first seed that shows it, and how."""
    with ExitStack() as seeded:
        for patch in bug():
            seeded.enter_context(patch)
        for seed in seeds:
            found = run_seed(seed, BUGS[bug]).violations
            if found:
                return seed, found[0]
    return None


def _without_forgotten(sound: Callable[[FleetView], Any]) -> Callable[[FleetView], Any]:
    def tasks(view: FleetView) -> Any:
        return {key: status for key, status in sound(view).items() if "does not know of it" not in status.detail}

    return tasks
