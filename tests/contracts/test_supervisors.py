"""What every supervisor of a task does, real or played: which files it writes, when, and what it makes of orders.

The files are those of reconciler/supervisor/taskfiles.py. Agents know no more of a task than these say.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from reconciler.node.local.tasks import Started, TaskActivity, TaskExit
from reconciler.protocols.backend import GrowGang, StartGang
from reconciler.supervisor import taskfiles
from solver.model.cluster import NodeName
from solver.model.quantities import Duration, Memory
from solver.model.shape import Shape
from solver.model.workload import JobName, JobSpec, QueueName, TaskGroup, TaskPlacement
from tests.contracts.backend_world import Command
from tests.contracts.supervisor_worlds import SupervisorWorld, begin, played_supervisors, real_supervisors, wait_for

T = TypeVar("T")

WORLDS: dict[str, Callable[[Path], Any]] = {"played": played_supervisors, "real": real_supervisors}
LONG_S = 600.0


@pytest.fixture(params=["played", pytest.param("real", marks=pytest.mark.thorough)])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SupervisorWorld]:
    """A machine on which nothing runs."""
    with WORLDS[request.param](tmp_path) as made:
        yield made


@pytest.fixture
def attempt(tmp_path: Path) -> Path:
    """The folder of an attempt, which is yet to be made."""
    return tmp_path / "tasks" / "job.1"


def order(command: Command, *, watch_s: float = 0.0, memory: str = "0", tasks: int = 1) -> StartGang:
    group = TaskGroup("worker", tasks, Shape(memory=Memory.parse(memory)))
    spec = JobSpec(QueueName("q"), (group,), command=command)
    placed = tuple(TaskPlacement("worker", index, NodeName("n1")) for index in range(tasks))
    return StartGang(JobName("job"), 1, placed, spec, Duration(int(watch_s * 1_000)) or None)


def begun(world: SupervisorWorld, attempt: Path, command: Command, **more: Any) -> Path:
    """The folder of the one task of a gang, once its command has begun."""
    [folder] = begin(world, attempt, order(command, **more))
    wait_for(world, lambda: started(folder) is not None and world.starts(folder) == 1)
    return folder


def started(folder: Path) -> Started | None:
    return _read(folder / taskfiles.STARTED, Started)


def ended(folder: Path) -> TaskExit | None:
    return _read(folder / taskfiles.EXIT, TaskExit)


def end_of(world: SupervisorWorld, folder: Path) -> TaskExit:
    """How a task ended, once its supervisor has too."""
    wait_for(world, lambda: not world.alive())
    found = ended(folder)
    assert found is not None
    return found


def is_locked(folder: Path) -> bool:
    """Whether a supervisor says that it lives."""
    path = folder / taskfiles.LOCK
    if not path.exists():
        return False
    with path.open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def ask(folder: Path, name: str, grace_s: float, **more: str) -> None:
    """An order, as an agent writes it."""
    taskfiles.write_durably(str(folder / name), json.dumps({"graceS": grace_s, **more}))


def tell(attempt: Path, *tells: tuple[int, int, str]) -> None:
    """What the tasks of an attempt are to be told, each as its number, growth and reason."""
    content = [
        {"number": number, "growth": growth, "reason": reason, "until": 7, "signal": ""}
        for number, growth, reason in tells
    ]
    taskfiles.write_durably(str(attempt / Path(taskfiles.TELLS).name), json.dumps({"tells": content}))


def test_its_lock_is_held_while_its_command_runs_and_until_its_end_is_written(
    world: SupervisorWorld, attempt: Path
) -> None:
    [folder] = begin(world, attempt, order(world.fails(3)))
    while ended(folder) is None:
        if started(folder) is not None and not is_locked(folder):
            assert ended(folder) is not None, "its lock is free, and it did not say how it ended"
        assert world.starts(folder) == 0 or started(folder) is not None, "its command runs, and it did not say so"
        world.settle()
    said, began = end_of(world, folder), started(folder)
    assert began is not None
    assert (said.code, said.stopped, said.lost) == (3, False, "")
    assert said.at >= began.at
    assert said.memory is not None
    assert not is_locked(folder)


def test_of_two_one_begins_the_task_and_none_begins_it_again(world: SupervisorWorld, attempt: Path) -> None:
    [folder] = begin(world, attempt, order(world.succeeds()))
    world.spawn(folder)
    assert end_of(world, folder).code == 0
    files = [(folder / name).read_bytes() for name in (taskfiles.STARTED, taskfiles.EXIT)]
    world.spawn(folder)
    wait_for(world, lambda: not world.alive())
    assert world.starts(folder) == 1
    assert [(folder / name).read_bytes() for name in (taskfiles.STARTED, taskfiles.EXIT)] == files


@pytest.mark.parametrize("name", [taskfiles.STOP, taskfiles.LEAVE])
def test_what_was_to_end_before_it_began_leaves_no_trace(world: SupervisorWorld, attempt: Path, name: str) -> None:
    first = attempt / "worker.0"
    first.mkdir(parents=True)
    ask(first, name, 0.0)
    [folder] = begin(world, attempt, order(world.runs()))
    wait_for(world, lambda: not world.alive())
    assert world.starts(folder) == 0
    assert (started(folder), ended(folder), is_locked(folder)) == (None, None, False)


@pytest.mark.parametrize("name", [taskfiles.STOP, taskfiles.LEAVE])
def test_who_is_asked_to_end_has_its_grace_for_it(world: SupervisorWorld, attempt: Path, name: str) -> None:
    folder = begun(world, attempt, world.runs())
    ask(folder, name, LONG_S)
    said = end_of(world, folder)
    assert (said.code, said.stopped, said.lost) == (143, True, "")


def test_who_does_not_is_killed_when_the_shorter_of_two_graces_is_over(world: SupervisorWorld, attempt: Path) -> None:
    folder = begun(world, attempt, world.stubborn())
    ask(folder, taskfiles.STOP, LONG_S)
    asked_at = world.now()
    ask(folder, taskfiles.LEAVE, 0.5)
    said = end_of(world, folder)
    assert (said.code, said.stopped) == (137, True)
    assert 500 <= said.at - asked_at < LONG_S * 1_000


def test_what_is_aborted_is_lost_for_the_reason_that_is_given(world: SupervisorWorld, attempt: Path) -> None:
    folder = begun(world, attempt, world.runs())
    ask(folder, taskfiles.ABORT, 0.0, reason="its GPU is gone")
    said = end_of(world, folder)
    assert (said.stopped, said.lost) == (True, "its GPU is gone")


def test_an_order_that_comes_after_the_end_changes_nothing(world: SupervisorWorld, attempt: Path) -> None:
    first, second = begin(world, attempt, order(world.succeeds(), tasks=2))
    wait_for(world, lambda: not world.alive())
    before = ended(first)
    for name in (taskfiles.STOP, taskfiles.LEAVE, taskfiles.ABORT):
        ask(first, name, 0.0, reason="late")
    world.spawn(first)
    wait_for(world, lambda: not world.alive())
    assert ended(first) == before
    assert ended(second) is not None


def test_tasks_are_told_what_is_new_to_them_and_no_earlier_request_is_lost(
    world: SupervisorWorld, attempt: Path
) -> None:
    start = order(world.runs())
    folder = begun(world, attempt, world.runs())
    joining = (TaskPlacement("worker", 1, NodeName("n1")),)
    [joined] = begin(world, attempt, GrowGang(JobName("job"), 1, 1, joining, start.tasks, start.spec))
    wait_for(world, lambda: world.starts(joined) == 1)
    tell(attempt, (1, 0, "checkpoint"))
    wait_for(world, lambda: _told(folder) == 1)
    assert _request(folder) == {"number": 1, "reason": "checkpoint", "until": 7}
    tell(attempt, (1, 0, "checkpoint"), (2, 1, "checkpoint"), (3, 1, "dump"))
    wait_for(world, lambda: (_told(folder), _told(joined)) == (3, 3))
    assert [_request(each)["number"] for each in (folder, joined)] == [2, 2]


def test_it_was_not_told_what_was_for_those_who_came_before_it(world: SupervisorWorld, attempt: Path) -> None:
    start = order(world.runs())
    folder = begun(world, attempt, world.runs())
    joining = (TaskPlacement("worker", 1, NodeName("n1")),)
    tell(attempt, (1, 0, "checkpoint"))
    [joined] = begin(world, attempt, GrowGang(JobName("job"), 1, 1, joining, start.tasks, start.spec))
    wait_for(world, lambda: world.starts(joined) == 1)
    ask(folder, taskfiles.STOP, LONG_S)
    wait_for(world, lambda: not world.alive())
    assert (_told(folder), _told(joined)) == (1, 0)
    assert not (joined / taskfiles.REQUEST).exists()


@pytest.mark.parametrize("left", [False, True])
def test_a_launcher_begins_once_the_others_of_its_machine_have(
    world: SupervisorWorld, attempt: Path, left: bool
) -> None:
    groups = TaskGroup("head", 1, Shape(), launcher=True), TaskGroup("worker", 1, Shape())
    head, worker = (TaskPlacement(group.name, 0, NodeName("n1")) for group in groups)
    gang = StartGang(JobName("job"), 1, (head, worker), JobSpec(QueueName("q"), groups, command=world.succeeds()))
    [waiting] = begin(world, attempt, gang, [head])
    [another] = begin(world, attempt.with_name("another.1"), order(world.succeeds()))
    wait_for(world, lambda: ended(another) is not None)
    assert started(waiting) is None
    if left:
        ask(waiting, taskfiles.LEAVE, LONG_S)
        wait_for(world, lambda: not world.alive())
    begin(world, attempt, gang, [worker])
    wait_for(world, lambda: not world.alive())
    assert (ended(waiting) is None) is left


def test_what_a_task_does_is_said_where_it_is_asked_for(world: SupervisorWorld, attempt: Path) -> None:
    [asked, _] = begin(world, attempt, order(world.runs(), watch_s=4 * world.idle_s, tasks=2))
    wait_for(world, lambda: _idle_ms(asked) >= world.idle_s * 1_000)
    said = _read(asked / taskfiles.ACTIVITY, TaskActivity)
    assert said is not None
    assert said.seen_at <= world.now()


def test_and_nowhere_else(world: SupervisorWorld, attempt: Path) -> None:
    folder = begun(world, attempt, world.succeeds())
    end_of(world, folder)
    assert not (folder / taskfiles.ACTIVITY).exists()


def test_what_has_more_memory_than_it_asked_for_is_killed_and_was_not_stopped(
    world: SupervisorWorld, attempt: Path
) -> None:
    folder = begun(world, attempt, world.hogs(), memory="64Mi")
    said = end_of(world, folder)
    assert said.memory is not None
    assert (said.code, said.stopped, said.memory.exceeded) == (137, False, True)
    assert said.memory.peak > said.memory.limit == Memory.parse("64Mi")
    assert json.loads((folder / taskfiles.MEMORY).read_bytes())["exceeded"]


def test_when_the_power_fails_nothing_says_how_it_ended_and_it_does_not_begin_again(
    world: SupervisorWorld, attempt: Path
) -> None:
    folder = begun(world, attempt, world.runs())
    world.power_fails()
    assert (ended(folder), is_locked(folder)) == (None, False)
    world.spawn(folder)
    wait_for(world, lambda: not world.alive())
    assert world.starts(folder) == 1
    assert ended(folder) is None


def test_it_goes_with_its_folder(world: SupervisorWorld, attempt: Path) -> None:
    folder = begun(world, attempt, world.runs())
    moved = attempt.with_name("forgotten")
    attempt.rename(moved)
    ask(moved / folder.name, taskfiles.STOP, LONG_S)
    assert end_of(world, moved / folder.name).stopped


def _read(path: Path, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None


def _told(folder: Path) -> int:
    return _read(folder / taskfiles.TOLD, int) or 0


def _request(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / taskfiles.REQUEST).read_bytes()))


def _idle_ms(folder: Path) -> int:
    said = _read(folder / taskfiles.ACTIVITY, TaskActivity)
    return said.idle_ms if said else -1
