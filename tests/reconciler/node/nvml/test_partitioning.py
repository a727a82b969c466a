"""Orders that can't be done, or not now: each is refused with its reason, and nothing that is used is touched."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from reconciler.node.nvml.driver import GpuLostError, GpuUuid, InstancePlacement
from reconciler.node.nvml.library.nvml import NvmlDriver
from reconciler.node.nvml.partitioning import PartitionRequest, partition
from reconciler.node.nvml.profiles import vocabulary_of
from solver.model.cluster import DeviceId, MigInstance
from tests.reconciler.node.nvml.card import Card
from tests.reconciler.node.nvml.conftest import Install
from tests.reconciler.node.nvml.library import Library
from tests.reconciler.node.nvml.made import card_of, workstation

GPU = DeviceId("n1/0")


class Machine:
    """One card, and what is ordered of it."""

    def __init__(self, card: Card) -> None:
        self.card = card
        self.gpu = GpuUuid(card.uuid)
        self.driver = NvmlDriver()

    def order(self, *instances: str, used: Collection[str] = (), whole: bool = False) -> str:
        """What is refused; "" if nothing is."""
        words = vocabulary_of(self.card.product, self.driver.profiles(self.gpu))
        pairs = (each.split("@") for each in instances)
        wanted = None if whole else tuple(MigInstance(profile, int(start)) for profile, start in pairs)
        return partition(self.driver, self.gpu, words, PartitionRequest(GPU, wanted, [DeviceId(one) for one in used]))


@pytest.fixture
def hopper(install: Install) -> Machine:
    """With two instances."""
    return partitioned(install, card_of("H100-80GB"))


@pytest.fixture
def ampere(install: Install) -> Machine:
    """Still whole."""
    card = card_of("A100-80GB")
    install(Library([card]))
    return Machine(card)


def partitioned(install: Install, card: Card) -> Machine:
    install(Library([card]))
    machine = Machine(card)
    assert machine.order("3g.40gb@4", "1g.10gb@0") == ""
    card.changes.clear()
    return machine


def test_only_what_the_order_no_longer_names_is_destroyed(hopper: Machine) -> None:
    kept = next(part for part in hopper.card.parts if part.start == 4)
    assert hopper.order("3g.40gb@4", "2g.20gb@0", used=["n1/0/3g.40gb@4"]) == ""
    assert kept in hopper.card.parts
    assert hopper.card.changes == [
        "no compute 1g.10gb@0",
        "destroy 1g.10gb@0",
        "create 2g.20gb@0",
        "compute 2g.20gb@0",
    ]


@pytest.mark.parametrize("used", ["n1/0/1g.10gb@0", "n1/0"])
def test_what_a_task_uses_is_not_taken_from_it(hopper: Machine, used: str) -> None:
    assert hopper.order("3g.40gb@4", used=[used]) == f"a task uses {used}"
    assert hopper.card.changes == []


def test_a_neighbour_whose_name_begins_the_same_is_another_gpu(hopper: Machine) -> None:
    assert hopper.order("3g.40gb@4", used=["n1/01", "n1/01/1g.10gb@0", "n1/0/3g.40gb@4"]) == ""


def test_what_another_program_uses_is_not_taken_from_it_and_nothing_else_either(hopper: Machine) -> None:
    busy = next(part for part in hopper.card.parts if part.start == 4)
    hopper.card.pids = [(4711, busy.id)]
    assert "process 4711 uses it" in hopper.order()
    assert hopper.card.changes == [], "the instance beside it, which nobody uses, stays until all can be done"
    assert hopper.order("3g.40gb@4") == "", "it may work on in an instance that stays"


def test_who_comes_between_two_deeds_is_left_alone_too(hopper: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    last = hopper.card.parts[-1]
    destroy = hopper.card.destroy

    def and_somebody_comes(part: Any) -> None:
        destroy(part)
        hopper.card.pids.extend((4711, other.id) for other in hopper.card.parts)

    monkeypatch.setattr(hopper.card, "destroy", and_somebody_comes)
    assert "something uses it" in hopper.order()
    left = set(hopper.card.geometry())
    assert len(left) == 1
    hopper.card.pids.clear()
    monkeypatch.undo()
    assert hopper.order() == ""
    assert last not in hopper.card.parts


def test_an_instance_that_plans_do_not_know_is_left_to_whoever_made_it(
    hopper: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = vocabulary_of(hopper.card.product, hopper.driver.profiles(hopper.gpu))
    short = words._replace(offered={name: one for name, one in words.offered.items() if name != "1g.10gb"})
    monkeypatch.setattr("tests.reconciler.node.nvml.test_partitioning.vocabulary_of", lambda *_: short)
    assert "profile 19 at 0" in hopper.order("3g.40gb@4")
    assert hopper.card.geometry() == {"3g.40gb@4", "1g.10gb@0"}


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        (["1g.5gb@0"], "an H100-80GB of this driver has no instance 1g.5gb@0"),
        (["3g.40gb@2"], "has no instance 3g.40gb@2"),
        (["4g.40gb@0", "1g.10gb@3"], "can't be on one GPU together: 1g.10gb@3, 4g.40gb@0"),
        (["1g.10gb+me@0", "1g.10gb+me@1"], "can't be on one GPU together"),
    ],
)
def test_what_can_not_be_is_refused_before_anything_is_destroyed(hopper: Machine, wanted: list[str], says: str) -> None:
    assert says in hopper.order(*wanted)
    assert hopper.card.changes == []


def test_the_same_name_is_another_instance_on_another_model(install: Install) -> None:
    for model, slices in (("A100-40GB", 2), ("A100-80GB", 1)):
        card = card_of(model)
        install(Library([card]))
        assert Machine(card).order("1g.10gb@0") == ""
        assert [part.profile.memory_slices for part in card.parts] == [slices]


def test_a_busy_ampere_stays_as_it_is_and_changes_at_no_later_reset_either(ampere: Machine) -> None:
    ampere.card.held_open = True
    refused = ampere.order("1g.10gb@0")
    assert "something uses it" in refused
    assert "nvidia-smi -mig 1" in refused
    assert (ampere.card.enabled, ampere.card.pending) == (False, False)
    ampere.card.restart()
    assert not ampere.card.enabled
    ampere.card.held_open = False
    assert ampere.order("1g.10gb@0") == ""
    assert ampere.card.geometry() == {"1g.10gb@0"}


def test_a_mode_that_waits_for_a_reset_is_taken_back(ampere: Machine) -> None:
    ampere.card.resets = False
    assert "has to be reset first" in ampere.order("1g.10gb@0")
    assert (ampere.card.enabled, ampere.card.pending) == (False, False)


def test_the_mode_is_not_switched_under_another_program(ampere: Machine) -> None:
    ampere.card.pids = [(4711, None)]
    assert "process 4711 uses it" in ampere.order("1g.10gb@0")
    assert ampere.card.changes == []


def test_after_a_restart_of_the_node_the_next_order_makes_all_of_it_again(install: Install) -> None:
    for model in ("A100-80GB", "H100-80GB"):
        machine = partitioned(install, card_of(model))
        machine.card.restart()
        assert machine.card.enabled == (model == "A100-80GB"), "an Ampere keeps its mode, and no GPU its instances"
        assert machine.order("3g.40gb@4", "1g.10gb@0") == ""
        assert machine.card.geometry() == {"3g.40gb@4", "1g.10gb@0"}


def test_an_instance_with_several_compute_instances_gets_one_that_has_all_of_it(hopper: Machine) -> None:
    part = next(part for part in hopper.card.parts if part.start == 4)
    part.compute, part.names = {0: 1, 1: 2}, {0: "MIG-a", 1: "MIG-b"}
    assert hopper.order("3g.40gb@4", "1g.10gb@0") == ""
    assert part in hopper.card.parts
    assert list(part.compute.values()) == [3]


def test_a_program_that_undoes_it_each_time_is_not_fought_for_ever(
    ampere: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = ampere.card.create

    def and_it_is_gone(*place: int) -> Any:
        part = create(*place)
        ampere.card.parts.remove(part)
        return part

    monkeypatch.setattr(ampere.card, "create", and_it_is_gone)
    assert "another program partitions it too" in ampere.order("1g.10gb@0")


def test_a_gpu_that_can_not_be_partitioned_says_so(install: Install) -> None:
    card = workstation()
    install(Library([card]))
    assert Machine(card).order("1g.10gb@0") == "this GPU can't be partitioned"
    assert Machine(card).order(whole=True) == ""


def test_a_model_that_the_table_lacks_is_not_guessed_at(install: Install) -> None:
    card = card_of("H100-80GB")
    card.product = "NVIDIA GB200"
    install(Library([card]))
    assert "knows no MIG profiles" in Machine(card).order("1g.10gb@0")


def test_a_lost_gpu_can_not_be_asked(hopper: Machine) -> None:
    hopper.card.lost = True
    with pytest.raises(GpuLostError):
        partition(hopper.driver, hopper.gpu, vocabulary_of("", ()), PartitionRequest(GPU, None, ()))


def test_an_enum_is_no_id(hopper: Machine) -> None:
    """Enum 9 is the 1g with double memory, and id 9 a 3g: the driver made what its id says, at the start that was asked for."""
    hopper.order()
    hopper.driver.create(hopper.gpu, InstancePlacement(9, 4, 4))
    assert [part.profile.name for part in hopper.card.parts] == ["3g.40gb"]
