"""The backend with tasks on many machines: orders go to the agents of the nodes they are about, reports come back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future, wait
from functools import lru_cache
from typing import Final

import msgspec

from reconciler.backends.baremetal.agent_server import AgentServer, NotThereError
from reconciler.backends.baremetal.agent_state import TaskKey
from reconciler.backends.baremetal.fleet import Fleet
from reconciler.backends.baremetal.merge import Patience, Stray
from reconciler.backends.baremetal.terminals import AgentLine
from reconciler.backends.baremetal.wire import (
    Answer,
    Do,
    Done,
    Failed,
    Forget,
    Lead,
    LogRead,
    Partition,
    ReadLog,
    SentSecret,
    ToAgent,
    meeting_port,
)
from reconciler.model.masking import read_masked
from reconciler.model.task_log import GapNotice
from reconciler.protocols.backend import (
    AttemptKey,
    BackendChanges,
    BackendUnreachableError,
    Cursor,
    Epoch,
    GrowGang,
    Meeting,
    Order,
    PartitionGpu,
    StaleEpochError,
    StartGang,
    StopTasks,
)
from reconciler.protocols.ledger import Claim, LedgerView
from reconciler.protocols.terminals import NoTerminalError, TerminalLine
from solver.model.cluster import NodeName
from solver.model.quantities import Duration
from solver.model.workload import JobName, JobSpec, TaskPlacement

ANSWERED_WITHIN_S: Final = 3.0
"""An agent answers once its disk has what it must not forget; one that takes longer is not waited for."""

STRAY_GRACE: Final = Duration(30_000)
_LOGS_REMEMBERED: Final = 10_000


class BareMetalBackend:
    """Implements Backend, Logs and Terminals; threads may share it.

    `claims`: what each job holds, by the ledger: which nodes have a part in an attempt is read from there. An order to a node whose
    agent is not connected is not kept: it is sent again by a later pass, once the agent is back. `secrets`: what tasks of a job are
    given of secrets now; `spec_of`: what a job says, None where there is no such job. `joining`: the tasks of growths in flight.
    """

    def __init__(
        self,
        door: AgentServer,
        fleet: Fleet,
        claims: Callable[[], Iterable[Claim]],
        patience: Callable[[], Patience] = Patience,
        secrets: Callable[[JobSpec], tuple[SentSecret, ...]] = lambda _: (),
        spec_of: Callable[[JobName], JobSpec | None] = lambda _: None,
        joining: Callable[[], Collection[TaskKey]] = frozenset,
    ) -> None:
        self._door = door
        self._fleet = fleet
        self._claims = claims
        self._patience = patience
        self._secrets = secrets
        self._spec_of = spec_of
        self._joining = joining
        self._held: dict[AttemptKey, Claim] = {}
        self._announced = Epoch(0)
        self._log_of = lru_cache(_LOGS_REMEMBERED)(self._find_log)

    def changes(self, since: Cursor) -> BackendChanges:
        """What changed after `since`; for an earlier process's cursor, everything."""
        self._door.declare()
        held = self._read_claims()
        changes, strays = self._fleet.look(since, held.values(), self._patience(), self._joining)
        self._stop_strays(strays)
        return changes

    def submit(self, order: Order, epoch: Epoch) -> None:
        """Send an order to the nodes it is about. Raises StaleEpochError."""
        self._lead(epoch)
        if isinstance(order, StartGang | GrowGang):
            self._begin(self._with_meeting(order), epoch)
        else:
            self._door.send(self._nodes_about(order), _doing(epoch, order))

    def partition(self, order: PartitionGpu, epoch: Epoch) -> None:
        """Send an order about a GPU to its node. Raises StaleEpochError."""
        self._lead(epoch)
        self._door.send([order.node], lambda number: Partition(number, epoch, order))

    def forget(self, job: JobName, attempt: int, epoch: Epoch) -> None:
        """Have every agent forget an attempt that tells of it. Raises StaleEpochError, BackendUnreachableError."""
        for why in self.forget_all([(job, attempt)], epoch).values():
            raise BackendUnreachableError(why)

    def forget_all(self, over: Collection[AttemptKey], epoch: Epoch) -> dict[AttemptKey, str]:
        """All agents are asked about all attempts before any is waited for: one that hangs costs a pass three seconds, once.

        An answer that comes later counts too: the agent will never speak of that attempt again.
        """
        self._lead(epoch)
        there = self._fleet.nodes_there()
        asked = {
            (key, node): self._ask_to_forget(node, key, epoch)
            for key in over
            for node in sorted(self._fleet.nodes_with(*key) & there)
        }
        wait(asked.values(), ANSWERED_WITHIN_S)
        unknown: dict[AttemptKey, list[str]] = {}
        why: dict[AttemptKey, str] = {}
        for (key, node), future in asked.items():
            answer = _answered(future) if future.done() else None
            if not isinstance(answer, Done):
                unknown.setdefault(key, []).append(node)
                why.setdefault(key, _why(answer))
        self._refuse_stale(epoch)
        return {key: f"{', '.join(nodes)}: {why[key]}" for key, nodes in unknown.items()}

    def _ask_to_forget(self, node: NodeName, key: AttemptKey, epoch: Epoch) -> Future[Answer]:
        """Ask an agent; once it has, the fleet knows."""
        asked = self._door.ask(node, _forgetting(epoch, key))

        def heard(answered: Future[Answer]) -> None:
            if answered.exception() is None and isinstance(answered.result(), Done):
                self._fleet.forgot(node, *key)

        asked.add_done_callback(heard)
        return asked

    def read_log(self, job: JobName, attempt: int, group: str, index: int, offset: int, limit: int) -> bytes:
        """Up to `limit` bytes from `offset`, from the node that has it, with the values of its secrets covered as far as may be.

        Raises KeyError, BackendUnreachableError.
        """
        node = self._node_of(job, attempt, group, index) or self._log_of((job, attempt, group, index))

        def read(start: int, length: int) -> bytes:
            answer = self._one_answer(node, lambda number: ReadLog(number, job, attempt, group, index, start, length))
            if isinstance(answer, LogRead) and answer.content is not None:
                return answer.content if answer.end is None else GapNotice(answer.content, answer.end)
            if isinstance(answer, LogRead):
                raise KeyError(f"no task {group}/{index} in attempt {attempt} of job {job} on {node}")
            raise BackendUnreachableError(f"{node}: {_why(answer)}")

        spec = self._spec_of(job)
        values = {secret.value.rstrip(b"\n") for secret in self._secrets(spec)} if spec else ()
        return read_masked(read, offset, limit, values)

    def open_terminal(self, job: JobName, attempt: int, group: str, index: int) -> TerminalLine:
        """Attach to the terminal of a task, through its node's agent. Raises NoTerminalError."""
        node = self._node_of(job, attempt, group, index)
        if node is None:
            raise NoTerminalError(f"nothing is known of task {group}/{index} of attempt {attempt} of {job}")
        return AgentLine.attached(self._door, node, (job, attempt, group, index), ANSWERED_WITHIN_S)

    def _begin(self, order: StartGang | GrowGang, epoch: Epoch) -> None:
        """Nodes on which tasks of the order begin get their secrets with it, and no others do."""
        beginning = {task.node for task in order.tasks}
        self._door.send(beginning, _doing(epoch, order, self._secrets(order.spec)))
        self._door.send(self._nodes_about(order) - beginning, _doing(epoch, order))

    def _read_claims(self) -> dict[AttemptKey, Claim]:
        self._held = {(claim.job, claim.attempt): claim for claim in self._claims()}
        return self._held

    def _claim(self, job: JobName, attempt: int) -> Claim | None:
        """What the ledger says; it is read again for an attempt that it did not have at the last look."""
        return self._held.get((job, attempt)) or self._read_claims().get((job, attempt))

    def _nodes_about(self, order: Order) -> set[NodeName]:
        """A start goes to all nodes with tasks in it; what ends or tells, to all that may have a part in the attempt."""
        if isinstance(order, StartGang):
            return {task.node for task in order.tasks}
        if isinstance(order, GrowGang):
            return {task.node for task in (*order.tasks, *order.beside)}
        claim = self._claim(order.job, order.attempt)
        claimed = {task.node for task in claim.tasks} if claim else set()
        return claimed | self._fleet.nodes_with(order.job, order.attempt) or self._fleet.nodes_there()

    def _with_meeting(self, order: StartGang | GrowGang) -> StartGang | GrowGang:
        meeting = Meeting(self._fleet.addresses(self._nodes_about(order)), meeting_port(order.job, order.attempt))
        return msgspec.structs.replace(order, meeting=meeting)

    def _lead(self, epoch: Epoch) -> None:
        """Under a new epoch, first have every agent that is there refuse older ones: only then is anything done."""
        self._fleet.leads_under(epoch)
        self._refuse_stale(epoch)
        if epoch > self._announced:
            self._asked(self._fleet.nodes_there(), lambda number: Lead(number, epoch))
            self._refuse_stale(epoch)
            self._announced = epoch

    def _refuse_stale(self, epoch: Epoch) -> None:
        if epoch < self._fleet.epoch:
            raise StaleEpochError(
                f"epoch {epoch} is not the newest: agents have seen {self._fleet.epoch}, so another control plane leads now"
            )

    def _stop_strays(self, strays: Iterable[Stray]) -> None:
        """Tasks that a gang which goes on has given up: nothing else would end them. Of attempts that are over the loop does."""
        for stray in strays:
            status, epoch = stray.status, self._announced
            if stray.claimed and epoch:
                task = TaskPlacement(status.group, status.index, stray.node)
                order = StopTasks(status.job, status.attempt, status.growth, (task,), STRAY_GRACE)
                self._door.send([stray.node], _doing(epoch, order))

    def _asked(
        self, nodes: Iterable[NodeName], message: Callable[[int], ToAgent]
    ) -> dict[NodeName, Answer | NotThereError | None]:
        """What each node answers; None: nothing in time."""
        asked: dict[NodeName, Future[Answer]] = {node: self._door.ask(node, message) for node in sorted(nodes)}
        wait(asked.values(), ANSWERED_WITHIN_S)
        return {node: _answered(future) for node, future in asked.items()}

    def _one_answer(self, node: NodeName, message: Callable[[int], ToAgent]) -> Answer | NotThereError | None:
        return self._asked([node], message)[node]

    def _node_of(self, job: JobName, attempt: int, group: str, index: int) -> NodeName | None:
        """Where a task is, or was last, as long as a node tells of it."""
        told = self._fleet.node_of((job, attempt, group, index))
        if told is not None:
            return told
        claim = self._claim(job, attempt)
        tasks = claim.tasks if claim else ()
        return next((task.node for task in tasks if (task.group, task.index) == (group, index)), None)

    def _find_log(self, task: TaskKey) -> NodeName:
        """Which agent has the log of a task that no node tells of any more. Raises KeyError."""
        answers = self._asked(self._fleet.nodes_there(), lambda number: ReadLog(number, *task, 0, 1))
        having = {node: answer.content for node, answer in answers.items() if isinstance(answer, LogRead)}
        known = sorted(node for node, content in having.items() if content is not None)
        if not known:
            job, attempt, group, index = task
            raise KeyError(f"no node that is connected has task {group}/{index} of attempt {attempt} of job {job}")
        # A node that was told of a task which was never there has an empty folder of it.
        return next((node for node in known if having[node]), known[0])


def joining(ledger: LedgerView) -> frozenset[TaskKey]:
    """The tasks of growths that are not confirmed."""
    growths = (intent for intent in ledger.intents() if intent.kind == "grow")
    return frozenset((grow.job, grow.attempt, task.group, task.index) for grow in growths for task in grow.tasks)


def _doing(epoch: Epoch, order: Order, secrets: tuple[SentSecret, ...] = ()) -> Callable[[int], ToAgent]:
    return lambda number: Do(number, epoch, order, secrets)


def _forgetting(epoch: Epoch, key: AttemptKey) -> Callable[[int], ToAgent]:
    return lambda number: Forget(number, epoch, *key)


def _answered(asked: Future[Answer]) -> Answer | NotThereError | None:
    if not asked.done():
        asked.cancel()
        return None
    failure = asked.exception()
    if failure is None:
        return asked.result()
    if isinstance(failure, NotThereError):
        return failure
    raise failure


def _why(answer: Answer | NotThereError | None) -> str:
    if isinstance(answer, Failed):
        return answer.why
    return str(answer) if isinstance(answer, NotThereError) else f"no answer in {ANSWERED_WITHIN_S:g} s"
