"""Wraps stores and backend so that every write passes a gate, where a control plane can be killed or held up."""

from __future__ import annotations

import inspect
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast

from reconciler.protocols.backend import Backend, Epoch, TellGang
from reconciler.protocols.checkpoints import CheckpointRegistry
from reconciler.protocols.health import NodeHealths
from reconciler.protocols.history import History
from reconciler.protocols.interventions import Interventions
from reconciler.protocols.job_source import JobSource
from reconciler.protocols.ledger import Ledger, Partitionings
from reconciler.store.store import SqlStore
from solver.model.workload import JobName

Moment = Literal["before", "after"]
TaskName = tuple[JobName, int, str, int]
"""Job, attempt, group and index."""

Told = tuple[JobName, int, int]
"""Job, attempt, and the number of what it was told."""

PROTOCOLS: Final[Mapping[str, type]] = {
    "jobs": JobSource,
    "ledger": Ledger,
    "partitionings": Partitionings,
    "checkpoints": CheckpointRegistry,
    "history": History,
    "interventions": Interventions,
    "health": NodeHealths,
    "backend": Backend,
}
"""What a control plane is given, each behind a door of its own."""

WITHOUT_EPOCH: Final[Mapping[str, tuple[str, ...]]] = {
    "ledger": ("lead",),
    "history": ("record_event", "record_events"),
}
"""Writes of the loop that carry no epoch: one gives it out, the others may come from anyone."""

USERS: Final[Mapping[str, tuple[str, ...]]] = {
    "jobs": (
        *("submit", "submit_each", "submit_all", "request_cancel", "request_cancel_all", "request_suspend", "resume"),
        "request_requeue",
    ),
    "interventions": ("begin", "release"),
    "health": ("forgive",),
}
"""Writes by which users change something. They carry no epoch: any process that answers the API may make them."""


def writes_of(protocol: type) -> tuple[str, ...]:
    """The methods that carry a leader's epoch, in their order: every write of a loop does."""
    found = [name for known in reversed(protocol.__mro__) for name in vars(known)]
    carrying = (
        name for name in dict.fromkeys(found) if callable(act := getattr(protocol, name)) and _carries_epoch(act)
    )
    return tuple(carrying)


def _carries_epoch(act: Callable[..., Any]) -> bool:
    return inspect.isfunction(act) and "epoch" in inspect.signature(act).parameters


WRITES: Final[Mapping[str, tuple[str, ...]]] = {
    door: (*WITHOUT_EPOCH.get(door, ()), *writes_of(protocol)) for door, protocol in PROTOCOLS.items()
}
"""Every call by which the loop changes something outside itself, read off the protocols: a write that is new has a gate."""


NOT_THE_LOOPS: Final = frozenset(
    {
        "ledger.resign",  # by the process that ran the loop, at its end
        *(
            "ledger.claim",
            "ledger.confirm_running",
            "ledger.release",
            "jobs.finish",
            "backend.forget",
        ),  # one of what goes in one write
        *("checkpoints.delete", "history.prune_rounds"),  # by threads of their own
    }
)
"""What no pass does."""

LOOP_WRITES: Final = tuple(
    write for door, names in WRITES.items() for name in names if (write := f"{door}.{name}") not in NOT_THE_LOOPS
)
"""What passes do: the gates that a run of many seeds has to come to, each of them."""

USERS_DOOR: Final = "users"
BLOCK: Final = "store.together"
"""What is on record whole, or not at all."""


class Killed(BaseException):
    """The control plane is dead from here on."""


@dataclass(slots=True)
class Gates:
    """Counts the gates passed, lets `at_gate` do its worst at each, and sees whether stale writers are let through."""

    at_gate: Callable[[str, Moment], None]
    passed: Counter[str] = field(default_factory=Counter)
    stale_accepted: list[str] = field(default_factory=list)
    newest: dict[str, int] = field(default_factory=lambda: {"stores": 0, "backend": 0})
    """The newest epoch that the stores gave out, and the newest that the backend heard of."""
    told_to_leave: set[TaskName] = field(default_factory=set)
    """Tasks that a gang was ever to go on without."""
    tells: set[Told] = field(default_factory=set)
    within: int = 0
    """How many blocks are under way: what holds a leader up there holds up all that write to the store."""
    open: int = 0
    """How many calls are between their gates."""
    ungated: list[str] = field(default_factory=list)
    """Places that wrote to the store, and had not come through a gate."""
    """Whatever a gang was ever told, whether or not the order arrived."""

    def call(self, door: str, name: str, act: Callable[..., Any], *args: Any) -> Any:
        """One write, with a gate on either side."""
        if name == "submit" and isinstance(args[0], TellGang):
            self.tells.add((args[0].job, args[0].attempt, args[0].number))
        self._pass(f"{door}.{name}", "before")
        self.open += 1
        try:
            result = act(*args)
        finally:
            self.open -= 1
        if door != USERS_DOOR:
            self._watch(door, name, args, result)
        self._pass(f"{door}.{name}", "after")
        return result

    @contextmanager
    def together(self, block: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
        """What is written in a block is on record with its end: behind that is a gate, too."""
        with ExitStack() as inside:
            self.open += 1
            try:
                inside.enter_context(block())
            finally:
                self.open -= 1
            self.within += 1
            inside.callback(self._left)
            yield
        self._pass(BLOCK, "after")

    def _left(self) -> None:
        self.within -= 1

    def written(self) -> None:
        """The store is being written to: that has to be behind a gate."""
        if not self.open:
            caller = traceback.extract_stack(limit=6)[0]
            self.ungated.append(f"{caller.filename}:{caller.lineno} {caller.name}")

    def _pass(self, gate: str, moment: Moment) -> None:
        self.passed[f"{moment} {gate}"] += 1
        self.at_gate(gate, moment)

    def _watch(self, door: str, name: str, args: tuple[Any, ...], result: Any) -> None:
        if name == "ask" and args[1].kind == "shrink":
            self.told_to_leave |= {(args[1].job, args[1].attempt, task.group, task.index) for task in args[1].tasks}
        receiver = "backend" if door == "backend" else "stores"
        if name == "lead":
            self.newest["stores"] = max(self.newest["stores"], result)
        elif name not in ("resign", "record_event", "record_events") and not _is_lost(name, args, result):
            epoch = cast("Epoch", args[-1] if door == "backend" else args[0])
            if epoch < self.newest[receiver]:
                self.stale_accepted.append(f"{door}.{name} under epoch {epoch} after {self.newest[receiver]}")
            self.newest[receiver] = max(self.newest[receiver], epoch)


def _is_lost(name: str, args: tuple[Any, ...], result: Any) -> bool:
    """Whether nothing of it arrived, so that nobody could look at its epoch: of other writes an error says so."""
    return name == "forget_all" and len(result) == len(args[0])


class _Door:
    """Passes everything on; writes go through the gates."""

    def __init__(self, door: str, behind: object, gates: Gates) -> None:
        self._door, self._behind, self._gates = door, behind, gates

    def __getattr__(self, name: str) -> Any:
        act = getattr(self._behind, name)
        if name == "partitionings":  # a part of the ledger, with writes of its own
            return _Door(name, act, self._gates)
        if name in WRITES[self._door]:
            return lambda *args: self._gates.call(self._door, name, act, *args)
        if name in USERS.get(self._door, ()):
            return lambda *args: self._gates.call(USERS_DOOR, name, act, *args)
        return act


@dataclass(frozen=True, slots=True)
class Doors:
    """What a control plane is given in place of the real things."""

    jobs: JobSource
    ledger: Ledger
    history: History
    checkpoints: CheckpointRegistry
    interventions: Interventions
    health: NodeHealths
    backend: Backend

    @classmethod
    def onto(cls, store: SqlStore, backend: Backend, gates: Gates) -> Doors:
        """Doors onto one open store and one backend."""
        return cls(
            cast("JobSource", _Door("jobs", store.jobs, gates)),
            cast("Ledger", _Door("ledger", store.ledger, gates)),
            cast("History", _Door("history", store.history, gates)),
            cast("CheckpointRegistry", _Door("checkpoints", store.checkpoints, gates)),
            cast("Interventions", _Door("interventions", store.interventions, gates)),
            cast("NodeHealths", _Door("health", store.health, gates)),
            cast("Backend", _Door("backend", backend, gates)),
        )
