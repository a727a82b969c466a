"""Keeps what every agent told, and when it was heard of: filled by the door's thread, read by the loop's and the API's."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from threading import Lock

from reconciler.backends.baremetal.agent_state import AgentState, Heard, TaskKey, of_itself
from reconciler.backends.baremetal.merge import FleetView, Patience, Stray
from reconciler.backends.baremetal.report_log import ReportLog
from reconciler.model.clock import Clock
from reconciler.protocols.backend import BackendChanges, Cursor, Epoch
from reconciler.protocols.ledger import Claim
from solver.model.cluster import NodeName
from solver.model.quantities import Duration
from solver.model.workload import JobName

TICK_S = 1.0
_TICK_MAX_S = 3 * TICK_S
"""A listener that was paused for longer than that heard no agent because it did not listen."""


class Fleet:
    """Silence is counted by `tick`, which the door calls as long as it listens: a control plane that was paused, whose machine
    slept, or that stood by while another led, finds no node lost before it has waited for it.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = Lock()
        self._nodes: dict[NodeName, Heard] = {}
        self._listened_s = 0.0
        self._ticked_s = clock.monotonic_s()
        self._since = 0.0, clock.now()
        self._numbered = ReportLog(self._since[1])
        self._epoch = self._led = Epoch(0)

    @property
    def epoch(self) -> Epoch:
        """The newest epoch that was seen."""
        return self._epoch

    @property
    def led(self) -> Epoch:
        """The newest under which this control plane has led: what one agent says that it has seen is nothing to tell another."""
        return self._led

    def leads_under(self, epoch: Epoch) -> None:
        """An order came."""
        with self._lock:
            self._led = max(self._led, epoch)
        self.saw_epoch(epoch)

    def saw_epoch(self, epoch: Epoch) -> None:
        """An agent says that it has seen this one."""
        with self._lock:
            self._epoch = max(self._epoch, epoch)

    def tick(self) -> None:
        """A listener is there."""
        with self._lock:
            now_s = self._clock.monotonic_s()
            self._listened_s += min(now_s - self._ticked_s, _TICK_MAX_S)
            self._ticked_s = now_s

    def away(self) -> None:
        """This control plane does not lead: agents talk to another. What they told grows old, and silence means nothing."""
        with self._lock:
            self._nodes.clear()
            self._ticked_s = self._clock.monotonic_s()
            self._since = self._listened_s, self._clock.now()

    def connected(self, node: NodeName, address: str) -> None:
        """Its agent is there, and has told nothing yet on this connection."""
        with self._lock:
            heard = self._heard(node)
            heard.connected, heard.whole_at, heard.address = True, None, address

    def disconnected(self, node: NodeName) -> None:
        """It is gone, for now."""
        with self._lock:
            self._heard(node).connected = False

    def heard(self, node: NodeName) -> None:
        """A message came from its agent."""
        with self._lock:
            heard = self._heard(node)
            heard.last_s, heard.at = self._listened_s, self._clock.now()

    def told(self, node: NodeName, changes: BackendChanges, whole: bool) -> None:
        """A report came."""
        with self._lock:
            heard = self._heard(node)
            if whole:
                heard.told, heard.whole_at = AgentState(), self._clock.now()
            heard.told.add(of_itself(node, changes))

    def forgot(self, node: NodeName, job: JobName, attempt: int) -> None:
        """An agent has forgotten an attempt."""
        with self._lock:
            self._heard(node).told.drop(job, attempt)

    def look(
        self,
        since: Cursor,
        claims: Iterable[Claim],
        patience: Patience,
        joining: Callable[[], Collection[TaskKey]] = frozenset,
    ) -> tuple[BackendChanges, tuple[Stray, ...]]:
        """What changed since a cursor, and what runs where it should not. `joining`: as FleetView has it."""
        with self._lock:
            claims = tuple(claims)
            for claim in claims:
                for task in claim.tasks:
                    self._heard(task.node)
            cluster = FleetView(self._nodes, claims, self._listened_s, patience, joining)
            return self._numbered.after(cluster.changes(), since), tuple(cluster.strays())

    def nodes_with(self, job: JobName, attempt: int) -> set[NodeName]:
        """Those that have told of an attempt."""
        return self._those(lambda heard: (job, attempt) in heard.told.attempts)

    def node_of(self, task: TaskKey) -> NodeName | None:
        """Where a task is, or was last; None: no node tells of it."""
        with self._lock:
            told = [(name, heard.told.tasks[task]) for name, heard in self._nodes.items() if task in heard.told.tasks]
        return max(told, key=lambda one: one[1].growth)[0] if told else None

    def nodes_there(self) -> set[NodeName]:
        """Those with a connected agent."""
        return self._those(lambda heard: heard.connected)

    def silent(self, longer_than: Duration) -> set[NodeName]:
        """Those with a connected agent that has not been heard of for so long."""
        now_s = self._listened_s
        return self._those(lambda heard: heard.connected and (now_s - heard.last_s) * 1_000 >= longer_than)

    def silences_s(self) -> list[float]:
        """For how long each of the connected agents has not been heard of."""
        with self._lock:
            return [self._listened_s - heard.last_s for heard in self._nodes.values() if heard.connected]

    def addresses(self, nodes: Iterable[NodeName]) -> dict[NodeName, str]:
        """Where nodes can be reached; those that were never heard of are left out."""
        with self._lock:
            known = {node: self._nodes[node].address for node in sorted(set(nodes)) if node in self._nodes}
            return {node: address for node, address in known.items() if address}

    def _those(self, wanted: Callable[[Heard], bool]) -> set[NodeName]:
        with self._lock:
            return {name for name, heard in self._nodes.items() if wanted(heard)}

    def _heard(self, node: NodeName) -> Heard:
        """How a node stands; one that was never heard of has been silent since listening began."""
        if node not in self._nodes:
            self._nodes[node] = Heard(*self._since)
        return self._nodes[node]
