"""Which device a board is: the exporter names pods, placements name devices."""

from __future__ import annotations

from collections.abc import Mapping

from reconciler.kubernetes.use.boards import Holdings, PodKey, devices_of
from solver.model.cluster import DeviceId
from tests.reconciler.kubernetes.use.exporter import N1, job_on, world

A, B, C, D = (f"GPU-{letter}" for letter in "abcd")


def pod(name: str) -> PodKey:
    return "team", name


def found(known: Holdings, boards: Mapping[str, PodKey | None], **before: str) -> dict[str, int]:
    """By board, the index of its device."""
    told = devices_of(
        known.nodes[N1], boards, known, {f"GPU-{uuid}": DeviceId(f"n1/{index}") for uuid, index in before.items()}
    )
    return {uuid: int(device.rpartition("/")[2]) for uuid, device in sorted(told.items())}


def test_a_job_has_the_boards_of_its_pods_whichever_they_are() -> None:
    known = world(job_on("train", N1, 0, 1), job_on("serve", N1, 3))
    boards = {A: pod("serve"), B: None, C: pod("train"), D: pod("train")}
    assert found(known, boards) == {A: 3, B: 2, C: 0, D: 1}


def test_a_board_stays_what_it_was_as_long_as_it_can_be() -> None:
    known = world(job_on("train", N1, 0, 1))
    boards = {A: pod("train"), B: pod("train"), C: None, D: None}
    assert found(known, boards, a="1", c="3") == {A: 1, B: 0, C: 3, D: 2}
    assert found(world(), dict.fromkeys((A, B, C, D)), a="1", c="3") == {A: 1, B: 0, C: 3, D: 2}


def test_what_others_pods_have_is_no_job_and_takes_no_device_of_one() -> None:
    known = world(job_on("train", N1, 0, 1, 2))
    boards = {A: pod("somebody"), B: pod("train"), C: pod("train"), D: pod("train")}
    assert found(known, boards) == {A: 3, B: 0, C: 1, D: 2}


def test_more_boards_than_devices_are_left_out() -> None:
    known = world(job_on("train", N1, 2))
    assert found(known, {A: pod("train"), B: pod("train"), C: None}) == {A: 2, C: 0}


def test_where_no_pods_are_told_held_devices_are_not_known_unless_one_job_has_the_whole_node() -> None:
    boards: dict[str, PodKey | None] = dict.fromkeys((A, B, C, D))
    assert found(world(job_on("train", N1, 0, 1)), boards) == {A: 2, B: 3}
    assert found(world(job_on("train", N1, 0, 1, 2, 3)), boards) == {A: 0, B: 1, C: 2, D: 3}
