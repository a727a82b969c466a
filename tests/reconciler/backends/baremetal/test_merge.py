"""What is believed of a cluster, from what each agent told of its own node and what the ledger says."""

from __future__ import annotations

import msgspec

from reconciler.backends.baremetal.agent_state import TaskKey
from reconciler.backends.baremetal.fleet import Fleet
from reconciler.backends.baremetal.merge import Patience
from reconciler.lifecycle.jobs.backend_reports import BackendReports
from reconciler.model.facts import NodeFacts
from reconciler.protocols.backend import (
    AttemptStopped,
    BackendChanges,
    Cursor,
    Epoch,
    GpuPartitioned,
    TaskLeft,
    TaskState,
    TaskStatus,
)
from reconciler.protocols.ledger import Claim
from solver.model.cluster import Node, NodeName
from solver.model.quantities import Duration, Instant
from solver.model.workload import JobName, TaskPlacement
from tests.contracts.simulated_worlds import NODES

N1, N2 = NODES
JOB = JobName("job")
PATIENCE = Patience(Duration(20_000), Duration(300_000))
START = Instant.parse("2026-01-01T00:00:00Z")


class Time:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.passed_s = 0.0

    def now(self) -> Instant:
        return START.after(int(self.passed_s * 1_000))

    def monotonic_s(self) -> float:
        return self.passed_s


class World:
    """A fleet that hears what a test says, and a claim of two tasks, the first on n1 and the second on n2."""

    def __init__(self) -> None:
        self.time = Time()
        self.fleet = Fleet(self.time)
        self.claims = (claim(0, N1.name, N2.name),)

    def connect(self, *nodes: Node) -> None:
        for node in nodes:
            self.fleet.connected(node.name, f"{node.name}.example")
            self.hear(node, BackendChanges(Cursor(1), nodes=(node,)), whole=True)

    def hear(self, node: Node, changes: BackendChanges, whole: bool = False) -> None:
        self.fleet.heard(node.name)
        self.fleet.told(node.name, changes, whole)

    def listen(self, seconds: int) -> None:
        """Time passes in which the door listens, and nobody says anything."""
        for _ in range(seconds):
            self.time.passed_s += 1
            self.fleet.tick()

    def look(self, since: Cursor = Cursor(0)) -> BackendChanges:  # noqa: B008  (a number)
        return self.fleet.look(since, self.claims, PATIENCE)[0]

    def joins(self, *keys: TaskKey) -> list[str]:
        """How tasks stand while these are to join."""
        found = self.fleet.look(Cursor(0), self.claims, PATIENCE, lambda: keys)[0].tasks
        return [task.state for task in sorted(found, key=lambda task: task.index)]

    def ready(self, node: Node) -> bool:
        return {known.name: known.ready for known in self.look().nodes}[node.name]

    def states(self) -> list[str]:
        return [task.state for task in sorted(self.look().tasks, key=lambda task: task.index)]


def claim(growth: int, *nodes: NodeName) -> Claim:
    tasks = tuple(TaskPlacement("worker", index, node) for index, node in enumerate(nodes))
    return Claim(JOB, 1, tasks, START, growth=growth)


def status(index: int, node: Node, state: TaskState = "running", growth: int = 0, attempt: int = 1) -> TaskStatus:
    return TaskStatus(JOB, attempt, "worker", index, node.name, state, START, growth=growth)


def task(index: int, node: Node, state: TaskState = "running", growth: int = 0, attempt: int = 1) -> BackendChanges:
    return BackendChanges(Cursor(2), tasks=(status(index, node, state, growth, attempt),))


def stopped(attempt: int = 1) -> BackendChanges:
    return BackendChanges(Cursor(3), stopped=(AttemptStopped(JOB, attempt, START),))


def left(index: int, growth: int = 0) -> BackendChanges:
    return BackendChanges(Cursor(3), left=(TaskLeft(JOB, 1, "worker", index, growth, START),))


def test_an_attempt_is_stopped_once_every_node_of_its_claim_says_so() -> None:
    world = World()
    world.connect(N1, N2)
    world.hear(N1, stopped())
    assert world.look().stopped == ()
    world.hear(N2, stopped())
    assert [done.job for done in world.look().stopped] == [JOB]


def test_after_a_restart_of_the_control_plane_the_ledger_still_says_who_is_to_be_asked() -> None:
    world = World()
    world.connect(N1)
    world.hear(N1, stopped())
    assert world.look().stopped == (), "n2 has not come back yet"


def test_a_silent_node_is_not_ready_and_its_tasks_run_on() -> None:
    world = World()
    world.connect(N1, N2)
    world.hear(N1, task(0, N1))
    world.hear(N2, task(1, N2))
    world.listen(19)
    assert world.ready(N2)
    world.listen(1)
    world.hear(N1, BackendChanges(Cursor(3)))
    assert (world.ready(N1), world.ready(N2)) == (True, False)
    world.listen(279)
    assert world.states() == ["running", "running"]


def test_who_is_connected_and_says_nothing_is_known() -> None:
    world = World()
    world.connect(N1, N2)
    world.listen(19)
    world.hear(N1, BackendChanges(Cursor(2)))
    world.listen(1)
    assert world.fleet.silent(PATIENCE.lease) == {N2.name}
    world.fleet.disconnected(N2.name)
    assert world.fleet.silent(PATIENCE.lease) == set()


def test_a_node_that_stays_silent_is_given_up_and_nobody_waits_for_its_word() -> None:
    world = World()
    world.connect(N1, N2)
    world.hear(N1, task(0, N1))
    world.hear(N2, task(1, N2))
    for _ in range(300):
        world.listen(1)
        world.hear(N1, BackendChanges(Cursor(3)))
    assert world.states() == ["running", "lost"]
    (lost,) = (task for task in world.look().tasks if task.state == "lost")
    assert lost.at == START.after(PATIENCE.lost_after)
    world.hear(N1, stopped())
    attempt = BackendReports.of(world.look()).attempt(JOB, 1)
    assert attempt.is_over(world.claims[0].tasks)


def test_a_gang_of_which_every_node_is_given_up_is_over() -> None:
    world = World()
    world.listen(300)
    assert world.states() == ["lost", "lost"], "also where nobody ever told of it"
    assert BackendReports.of(world.look()).attempt(JOB, 1).is_over(world.claims[0].tasks)


def test_a_listener_that_slept_has_heard_nobody_and_gives_nobody_up() -> None:
    world = World()
    world.connect(N1, N2)
    world.hear(N2, task(1, N2))
    world.time.passed_s += 3_600
    world.fleet.tick()
    assert world.ready(N2)
    assert "lost" not in world.states()


def test_who_stood_by_for_long_waits_for_nodes_from_when_it_leads() -> None:
    world = World()
    world.connect(N1)
    for _ in range(600):
        world.time.passed_s += 1
        world.fleet.away()
    assert world.states() == []
    world.listen(299)
    assert world.states() == []
    world.listen(1)
    assert world.states() == ["lost", "lost"]


def test_a_node_is_ready_only_once_it_has_told_everything_on_its_new_connection() -> None:
    world = World()
    world.connect(N1)
    world.fleet.disconnected(N1.name)
    world.fleet.connected(N1.name, "n1.example")
    world.fleet.heard(N1.name)
    assert not world.ready(N1)
    world.hear(N1, BackendChanges(Cursor(1), nodes=(N1,)), whole=True)
    assert world.ready(N1)


def test_a_node_that_still_runs_what_was_released_is_not_ready_before_that_has_ended() -> None:
    world = World()
    world.connect(N1)
    world.hear(N1, task(0, N1, attempt=7))
    assert not world.ready(N1)
    assert [task.attempt for task in world.look().tasks if task.state == "running"] == [7], "so that it is stopped"
    world.hear(N1, task(0, N1, "stopped", attempt=7))
    assert world.ready(N1)


def test_a_task_that_its_gang_has_given_up_is_a_stray_where_it_runs_on() -> None:
    world = World()
    world.connect(N1, N2)
    world.hear(N2, task(0, N2))
    _, strays = world.fleet.look(Cursor(0), world.claims, PATIENCE)
    assert [(stray.node, stray.claimed) for stray in strays] == [(N2.name, True)]
    assert not world.ready(N2)


def test_what_a_node_that_is_gone_told_of_others_attempts_is_left_out() -> None:
    world = World()
    world.connect(N1)
    world.hear(N1, task(0, N1, "stopped", attempt=7))
    world.hear(N1, stopped(7))
    world.fleet.disconnected(N1.name)
    assert world.look().tasks == ()
    assert world.look().stopped == ()


def test_a_task_has_left_once_its_node_says_so_whatever_others_say() -> None:
    world = World()
    world.connect(N1, N2)
    world.hear(N2, task(1, N2))
    world.hear(N1, left(1))
    assert world.look().left == ()
    world.hear(N2, left(1))
    assert [gone.index for gone in world.look().left] == [1]


def test_a_task_that_has_moved_stands_as_where_it_came_last() -> None:
    world = World()
    world.claims = (claim(1, N1.name, N1.name),)
    world.connect(N1, N2)
    world.hear(N1, task(1, N1, growth=1))
    world.hear(N2, task(1, N2, "stopped"))
    (seen,) = world.look().tasks
    assert (seen.node, seen.state) == (N1.name, "running")


def test_an_agent_speaks_for_its_own_node_alone() -> None:
    world = World()
    world.connect(N1, N2)
    world.hear(N2, task(1, N2))
    of_another = BackendChanges(
        Cursor(2),
        nodes=(msgspec.structs.replace(N2, cordoned=True),),
        tasks=(status(1, N2, "failed", growth=1),),
        partitioned=(GpuPartitioned(N2.gpus[0].id, 1, START, ()),),
        facts=(NodeFacts(N2.name, START),),
    )
    before = world.look()
    world.hear(N1, of_another)
    assert world.look() == before


def test_a_task_stands_as_the_node_tells_where_the_ledger_has_it() -> None:
    world = World()
    world.connect(N1, N2)
    world.hear(N1, task(0, N1))
    world.hear(N2, task(0, N2, "succeeded", growth=1))
    assert world.states() == ["running"]


def test_a_whole_report_takes_the_place_of_what_was_told() -> None:
    world = World()
    world.connect(N1)
    world.hear(N1, task(0, N1))
    world.connect(N1)
    assert world.look().tasks == ()


def test_cursors_of_an_earlier_process_get_everything_again() -> None:
    earlier, later = World(), World()
    earlier.connect(N1)
    cursor = earlier.look().cursor
    assert earlier.look(cursor).nodes == ()
    later.time.passed_s = 1
    later.fleet = Fleet(later.time)
    later.connect(N1)
    assert [node.name for node in later.look(cursor).nodes] == [N1.name]


def test_the_newest_epoch_is_that_which_anybody_has_seen() -> None:
    world = World()
    for epoch in (3, 5, 4):
        world.fleet.saw_epoch(Epoch(epoch))
    assert world.fleet.epoch == 5


def running() -> World:
    """Both tasks run, and both agents have said so."""
    world = World()
    world.claims = (msgspec.structs.replace(claim(0, N1.name, N2.name), running_since=START),)
    world.connect(N1, N2)
    world.hear(N1, task(0, N1))
    world.hear(N2, task(1, N2))
    assert world.states() == ["running", "running"]
    return world


def test_what_an_agent_that_has_told_everything_does_not_know_of_is_lost() -> None:
    world = running()
    world.fleet.disconnected(N2.name)
    world.fleet.connected(N2.name, "n2.example")
    assert world.states() == ["running", "running"], "it has told nothing yet"
    world.hear(N2, BackendChanges(Cursor(1), nodes=(N2,)), whole=True)
    assert world.states() == ["running", "lost"]
    lost = world.look().tasks[1]
    assert "does not know of it" in lost.detail
    world.listen(5)
    assert world.look().tasks[1] == lost, "it is not lost anew at every look"


def test_so_is_what_began_by_what_is_known_and_has_not_by_an_older_disk() -> None:
    world = running()
    world.connect(N2)
    world.hear(N2, task(1, N2, "starting"))
    assert world.states() == ["running", "lost"]


def test_what_is_to_join_may_not_be_known_yet_and_what_is_to_start_either() -> None:
    world = running()
    world.connect(N2)
    assert world.joins((JOB, 1, "worker", 1)) == ["running"]
    world.claims = (claim(0, N1.name, N2.name),)
    assert world.states() == ["running"]


def test_an_agent_that_is_not_there_may_know_of_what_it_has_not_told() -> None:
    world = running()
    world.connect(N2)
    world.fleet.disconnected(N2.name)
    assert world.states() == ["running"]
