"""Every backend keeps these promises; see reconciler/protocols/backend.py. Time is whatever `settle` makes of it."""

from __future__ import annotations

import pytest

from reconciler.protocols.backend import ENDED, Cursor, StaleEpochError
from solver.model.workload import JobName
from tests.contracts.backend_world import BackendWorld, Watcher, let_another_job_run, start, stop


def test_every_declared_node_is_reported_ready(world: BackendWorld, watcher: Watcher) -> None:
    watcher.until(lambda: set(watcher.nodes) == {node.name for node in world.nodes})
    assert all(node.ready for node in watcher.nodes.values())
    assert all(gpu.healthy for node in watcher.nodes.values() for gpu in node.gpus)


def test_a_started_gang_runs_where_it_was_told(world: BackendWorld, watcher: Watcher) -> None:
    watcher.send(start(world, "job", world.runs(), (0, (0, 1)), (1, (0,))))
    watcher.until(lambda: watcher.states("job") == ["running", "running"])
    nodes = [watcher.tasks[(JobName("job"), 1, "worker", index)].node for index in (0, 1)]
    assert nodes == [world.nodes[0].name, world.nodes[1].name]


def test_the_same_start_twice_is_one_start(world: BackendWorld, watcher: Watcher) -> None:
    order = start(world, "job", world.runs(), (0, (0,)))
    watcher.send(order)
    watcher.send(order)
    watcher.until(lambda: watcher.states("job") == ["running"])
    watcher.send(order)
    let_another_job_run(world, watcher)
    assert world.starts(JobName("job"), 1, "worker", 0) == 1


def test_an_ended_attempt_does_not_start_again(world: BackendWorld, watcher: Watcher) -> None:
    order = start(world, "job", world.succeeds(), (0, (0,)))
    watcher.send(order)
    watcher.until(lambda: watcher.states("job") == ["succeeded"])
    watcher.send(order)
    watcher.forget("job")
    watcher.send(order)  # a duplicate that was long on its way
    let_another_job_run(world, watcher)
    assert world.starts(JobName("job"), 1, "worker", 0) == 1


def test_the_next_attempt_is_another_start(world: BackendWorld, watcher: Watcher) -> None:
    watcher.send(start(world, "job", world.runs(), (0, (0,))))
    watcher.until(lambda: watcher.states("job") == ["running"])
    watcher.send(stop("job"))
    watcher.until(lambda: watcher.is_stopped("job"))
    watcher.send(start(world, "job", world.runs(), (1, (0,)), attempt=2))
    watcher.until(lambda: watcher.states("job", 2) == ["running"])
    assert world.starts(JobName("job"), 2, "worker", 0) == 1


def test_jobs_that_were_called_the_same_are_told_apart(world: BackendWorld, watcher: Watcher) -> None:
    watcher.send(start(world, "train", world.fails(3), (0, (0,))))
    watcher.until(lambda: watcher.states("train") == ["failed"])
    watcher.send(start(world, "train#2", world.succeeds(), (0, (0,))))
    watcher.until(lambda: watcher.states("train#2") == ["succeeded"])
    watcher.forget("train")
    let_another_job_run(world, watcher)
    assert [world.starts(JobName(job), 1, "worker", 0) for job in ("train", "train#2")] == [1, 1]


def test_exit_codes_are_reported(world: BackendWorld, watcher: Watcher) -> None:
    watcher.send(start(world, "good", world.succeeds(), (0, (0,))))
    watcher.send(start(world, "bad", world.fails(3), (0, (1,))))
    watcher.until(lambda: watcher.states("good") == ["succeeded"] and watcher.states("bad") == ["failed"])
    assert watcher.tasks[(JobName("good"), 1, "worker", 0)].exit_code == 0
    assert watcher.tasks[(JobName("bad"), 1, "worker", 0)].exit_code == 3
    assert not watcher.stopped


def test_a_stopped_gang_ends_and_says_so(world: BackendWorld, watcher: Watcher) -> None:
    watcher.send(start(world, "job", world.runs(), (0, (0,)), (1, (0,))))
    watcher.until(lambda: watcher.states("job") == ["running", "running"])
    watcher.send(stop("job"))
    watcher.until(lambda: watcher.is_stopped("job"))
    assert watcher.states("job") == ["stopped", "stopped"]


def test_a_stop_says_nothing_runs_when_the_task_had_ended_by_itself(world: BackendWorld, watcher: Watcher) -> None:
    watcher.send(start(world, "job", world.fails(7), (0, (0,))))
    watcher.until(lambda: watcher.states("job") == ["failed"])
    watcher.send(stop("job"))
    watcher.until(lambda: watcher.is_stopped("job"))
    assert watcher.states("job") == ["failed"]


def test_stopping_twice_is_stopping_once(world: BackendWorld, watcher: Watcher) -> None:
    watcher.send(start(world, "job", world.runs(), (0, (0,))))
    watcher.until(lambda: watcher.states("job") == ["running"])
    watcher.send(stop("job"))
    watcher.send(stop("job"))
    watcher.until(lambda: watcher.is_stopped("job"))
    watcher.send(stop("job"))
    watcher.until_quiet()
    assert watcher.states("job") == ["stopped"]


@pytest.mark.parametrize("forgotten", [False, True])
def test_stopped_before_it_started_it_never_starts(world: BackendWorld, watcher: Watcher, forgotten: bool) -> None:
    watcher.send(stop("job"))
    watcher.until(lambda: watcher.is_stopped("job"))
    if forgotten:
        watcher.forget("job")
    watcher.send(start(world, "job", world.runs(), (0, (0,))))
    let_another_job_run(world, watcher)
    assert world.starts(JobName("job"), 1, "worker", 0) == 0
    assert not [state for state in watcher.states("job") if state in ("starting", "running")]


def test_stopped_while_starting_it_ends(world: BackendWorld, watcher: Watcher) -> None:
    watcher.send(start(world, "job", world.runs(), (0, (0,)), (1, (0,))))
    watcher.send(stop("job"))
    watcher.until(lambda: watcher.is_stopped("job"))
    let_another_job_run(world, watcher)
    assert set(watcher.states("job")) <= {"stopped"}


def test_a_new_backend_object_finds_what_runs_and_what_ended(world: BackendWorld, watcher: Watcher) -> None:
    watcher.send(start(world, "long", world.runs(), (0, (0,))))
    watcher.send(start(world, "short", world.succeeds(), (0, (1,))))
    watcher.send(stop("never"))
    watcher.until(lambda: watcher.states("long") == ["running"] and watcher.states("short") == ["succeeded"])
    watcher.until(lambda: watcher.is_stopped("never"))
    world.restart()
    again = Watcher(world)
    again.until(lambda: again.states("long") == ["running"] and again.states("short") == ["succeeded"])
    again.until(lambda: again.is_stopped("never"))
    assert world.starts(JobName("long"), 1, "worker", 0) == 1  # A stop could end it before it has come to signing.
    again.send(stop("long"))
    again.until(lambda: again.is_stopped("long"))
    assert world.starts(JobName("long"), 1, "worker", 0) == 1


def test_orders_repeated_to_a_new_backend_object_start_nothing_twice(world: BackendWorld, watcher: Watcher) -> None:
    order = start(world, "job", world.runs(), (0, (0,)))
    watcher.send(order)
    watcher.until(lambda: watcher.states("job") == ["running"])
    world.restart()
    again = Watcher(world)
    again.send(order)
    let_another_job_run(world, again)
    assert world.starts(JobName("job"), 1, "worker", 0) == 1


def test_a_forgotten_attempt_is_not_reported_again(world: BackendWorld, watcher: Watcher) -> None:
    watcher.send(start(world, "gone", world.succeeds(), (0, (0,))))
    watcher.send(start(world, "kept", world.succeeds(), (0, (1,))))
    watcher.until(lambda: watcher.states("gone") == ["succeeded"] and watcher.states("kept") == ["succeeded"])
    watcher.forget("gone")
    watcher.forget("gone")
    world.restart()
    again = Watcher(world)
    again.until(lambda: again.states("kept") == ["succeeded"])
    again.until_quiet()
    assert again.states("gone") == []


def test_following_the_cursor_misses_nothing_and_comes_to_rest(world: BackendWorld, watcher: Watcher) -> None:
    for number, place in enumerate([(0, (0,)), (0, (1,)), (1, (0,)), (1, (1,))]):
        command = world.succeeds() if number % 2 else world.fails(number + 1)
        watcher.send(start(world, f"job-{number}", command, place))
        watcher.look()
        world.settle()
    watcher.until(lambda: len(watcher.tasks) == 4 and all(task.state in ENDED for task in watcher.tasks.values()))
    watcher.until_quiet()
    from_the_start = Watcher(world)
    from_the_start.until(lambda: len(from_the_start.tasks) == 4)
    from_the_start.until_quiet()
    assert from_the_start.tasks == watcher.tasks
    assert watcher.look().tasks == ()


def test_reading_from_an_old_cursor_again_gives_the_same_ends(world: BackendWorld, watcher: Watcher) -> None:
    watcher.until(lambda: bool(watcher.nodes))
    before = watcher.cursor
    watcher.send(start(world, "job", world.fails(5), (0, (0,))))
    watcher.until(lambda: watcher.states("job") == ["failed"])
    for since in (before, Cursor(0)):
        again = Watcher(world)
        again.cursor = since
        again.until(lambda watched=again: watched.states("job") == ["failed"])  # type: ignore[misc]


@pytest.mark.parametrize("restarted", [False, True])
def test_an_older_epoch_is_refused(world: BackendWorld, watcher: Watcher, restarted: bool) -> None:
    watcher.send(start(world, "job", world.runs(), (0, (0,))), epoch=1)
    watcher.until(lambda: watcher.states("job") == ["running"])
    watcher.send(start(world, "other", world.succeeds(), (0, (1,))), epoch=3)
    if restarted:
        world.restart()
        watcher = Watcher(world)
    with pytest.raises(StaleEpochError):
        watcher.send(stop("job"), epoch=2)
    with pytest.raises(StaleEpochError):
        watcher.send(start(world, "late", world.runs(), (1, (0,))), epoch=1)
    with pytest.raises(StaleEpochError):
        watcher.forget("job", epoch=2)
    let_another_job_run(world, watcher, epoch=3)
    assert watcher.states("job") == ["running"]
    assert world.starts(JobName("late"), 1, "worker", 0) == 0


def test_forgetting_makes_an_epoch_known_too(world: BackendWorld, watcher: Watcher) -> None:
    watcher.forget("never-was", epoch=5)
    with pytest.raises(StaleEpochError):
        watcher.send(start(world, "job", world.runs(), (0, (0,))), epoch=4)


def test_tasks_know_their_place_in_the_gang(world: BackendWorld, watcher: Watcher) -> None:
    watcher.send(start(world, "job", world.runs(), (0, (1,)), (1, (0,))))
    watcher.until(lambda: watcher.states("job") == ["running", "running"])
    seen = [world.environment(JobName("job"), 1, "worker", index) for index in (0, 1)]
    if seen[0] is None or seen[1] is None:
        pytest.skip("this backend starts nothing that has an environment")
    first, second = seen[0], seen[1]
    assert [first["RANK"], second["RANK"]] == ["0", "1"]
    assert first["WORLD_SIZE"] == second["WORLD_SIZE"] == "2"
    assert first["MASTER_ADDR"] == second["MASTER_ADDR"]
    assert first["MASTER_PORT"] == second["MASTER_PORT"]
    assert [first["CUDA_VISIBLE_DEVICES"], second["CUDA_VISIBLE_DEVICES"]] == ["1", "0"]
    assert first["QUORATE_JOB"] == "job"
    assert first["QUORATE_ATTEMPT"] == "1"
    assert [first["QUORATE_INDEX"], second["QUORATE_INDEX"]] == ["0", "1"]
    assert first["QUORATE_GROUP"] == "worker"
