"""What a machine has, for people: types as NodePools spell them, islands of NVLink, MIG, and what does not answer."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from reconciler.node.agent.folder import AgentFolder
from reconciler.node.nvml.driver import BusId, Wiring
from reconciler.node.nvml.inventory import islands, read_inventory
from reconciler.node.nvml.library.nvml import NvmlDriver
from solver.model.cluster import GpuType
from tests.reconciler.cli.conftest import Quorate, quorate
from tests.reconciler.node.nvml.card import Card
from tests.reconciler.node.nvml.conftest import Install
from tests.reconciler.node.nvml.library import NOT_FITTED, Library
from tests.reconciler.node.nvml.made import PRODUCTS, card_of, workstation
from tests.reconciler.node.nvml.test_gpus import node_of

__all__ = ["quorate"]

TYPES = {
    "A100-40GB": "A100-SXM4-40GB",
    "A100-80GB": "A100-PCIe-80GB",
    "A30-24GB": "A30-24GB",
    "B200-180GB": "B200-180GB",
    "H100-80GB": "H100-SXM5-80GB",
    "H100-NVL-94GB": "H100-NVL-94GB",
    "H200-141GB": "H200-SXM5-141GB",
}


@pytest.mark.parametrize("model", PRODUCTS)
def test_a_product_is_the_type_that_node_pools_name(install: Install, model: str) -> None:
    install(Library([card_of(model)]))
    (gpu,) = read_inventory(NvmlDriver()).gpus
    assert gpu.gpu_type == TYPES[model]
    assert gpu.mig is not None
    assert len(gpu.mig.profiles) == (5 if model == "A30-24GB" else 7)


def wired(*peers: str, switched: bool = False) -> Wiring:
    return Wiring(frozenset(map(BusId, peers)), switched)


@pytest.mark.parametrize(
    ("wirings", "expected"),
    [
        ({"a": wired(), "b": wired()}, ()),
        ({"a": wired("b"), "b": wired("a"), "c": wired()}, (("a", "b"),)),
        ({"a": wired("b"), "b": wired(), "c": wired("b"), "d": wired()}, (("a", "b", "c"),)),
        ({"a": wired("c"), "b": wired("d"), "c": wired("a"), "d": wired("b")}, (("a", "c"), ("b", "d"))),
        ({"a": wired(switched=True), "b": wired(switched=True), "c": wired()}, (("a", "b"),)),
        ({"a": wired("elsewhere")}, ()),
    ],
)
def test_islands_are_what_nvlink_joins(wirings: dict[str, Wiring], expected: tuple[tuple[str, ...], ...]) -> None:
    assert islands({BusId(bus): wiring for bus, wiring in wirings.items()}) == expected


def test_links_that_are_down_join_nothing(install: Install) -> None:
    library = install(
        Library([Card(0, links=(NOT_FITTED, 1, None)), Card(1, links=(0, None)), Card(2, links=(None, None))])
    )
    first, second, _ = NvmlDriver().gpus()
    assert read_inventory(NvmlDriver()).islands == ((first, second),)
    library.cards[0].links = library.cards[1].links = (None, None)
    assert read_inventory(NvmlDriver()).islands == ()


def test_switches_join_all_that_are_wired_to_them(install: Install) -> None:
    install(Library(Card(number, links=(-1,) * 18) for number in range(4)))
    inventory = read_inventory(NvmlDriver())
    assert inventory.islands == (NvmlDriver().gpus(),)


def test_a_clique_beyond_the_machine_is_spelled_as_on_kubernetes(install: Install) -> None:
    install(Library([Card(0, cluster=bytes(range(16))), Card(1)]))
    cliques = [gpu.clique for gpu in read_inventory(NvmlDriver()).gpus]
    assert cliques == ["00010203-0405-0607-0809-0a0b0c0d0e0f.7", ""]


def test_what_does_not_answer_is_listed_with_its_reason(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    library = install(Library([Card(0), Card(1)]))
    driver = NvmlDriver()
    gpus = driver.gpus()
    library.cards[0].lost = True
    monkeypatch.setattr(driver, "gpus", lambda: gpus)
    inventory = read_inventory(driver)
    assert [gpu.uuid for gpu in inventory.gpus] == [gpus[1]]
    assert inventory.failures[0].startswith(gpus[0])


def test_the_command_prints_a_table(install: Install, quorate: Quorate) -> None:
    sick = card_of("H100-80GB")
    sick.uncorrectable, sick.enabled, sick.pending = 2, True, False
    sick.create_compute(sick.create(9, 4, 4), 3)
    sick.create_compute(sick.create(19, 0, 1), 1)
    sick.model_name = "H100-80GB"
    install(Library([sick, workstation(1)]))
    ran = quorate("inventory")
    assert ran.exit_code == 0
    lines = ran.out.splitlines()
    assert lines[0] == "driver 580.95.05"
    assert "H100-SXM5-80GB" in lines[2]
    assert "on, off after a reset, 1g.10gb@0, 3g.40gb@4" in lines[2]
    assert "2 uncorrectable errors of memory" in lines[2]
    assert "L4-24GB" in lines[3]
    assert lines[3].endswith("well")


def test_the_command_prints_json(install: Install, quorate: Quorate) -> None:
    install(Library([card_of("H200-141GB")]))
    printed = json.loads(quorate("inventory", "-o", "json").out)
    assert (printed["apiVersion"], printed["kind"]) == ("quorate.dev/v1", "Inventory")
    assert printed["driver"] == "580.95.05"
    assert printed["gpus"][0]["gpuType"] == "H200-SXM5-141GB"
    assert printed["gpus"][0]["mig"]["enabled"] is False


def test_a_machine_without_gpus_is_no_error(install: Install, quorate: Quorate) -> None:
    install(Library(failing=9))
    ran = quorate("inventory")
    assert (ran.exit_code, ran.out) == (0, "no GPU of NVIDIA: Driver Not Loaded\n")


def test_a_driver_that_needs_a_person_is_an_error(install: Install, quorate: Quorate) -> None:
    install(Library(failing=18))
    ran = quorate("inventory")
    assert ran.exit_code == 1
    assert "Restart the node" in ran.err


def test_real_gpus_are_for_jobs_of_this_machine_alone(quorate: Quorate) -> None:
    ran = quorate("run", "--policies-repo", ".", "--kubernetes", "--gpus", "nvml")
    assert ran.exit_code == 64
    assert "--kubernetes" in ran.err


def test_what_is_otherwise_than_git_has_it_is_said(install: Install, quorate: Quorate, tmp_path: Path) -> None:
    install(Library([card_of("H100-80GB", 0), card_of("H100-80GB", 1)]))
    AgentFolder(tmp_path).keep_declared(node_of(2))
    assert json.loads(quorate("inventory", "--state", str(tmp_path), "-o", "json").out)["differences"] == []
    AgentFolder(tmp_path).keep_declared(
        msgspec.structs.replace(node_of(3), gpu_type=GpuType("H200-SXM5-141GB"), island="island-0001")
    )
    library = install(Library([card_of("H100-80GB", 0), card_of("H100-80GB", 1)]))
    library.cards[0].cluster = library.cards[1].cluster = bytes(range(16))
    assert quorate("inventory", "--state", str(tmp_path)).out.splitlines()[-4:] == [
        "in the NVLink domain 00010203-0405-0607-0809-0a0b0c0d0e0f.7",
        "Git declares 3 GPUs for n1, and 2 are here",
        "Git declares GPUs of type H200-SXM5-141GB, and H100-SXM5-80GB is here",
        "Git declares the island island-0001, which counts before the NVLink domain 00010203-0405-0607-0809-0a0b0c0d0e0f.7",
    ]
    library.cards[1].cluster = bytes(16)
    assert (
        "its GPUs are in several NVLink domains (none, 00010203" in quorate("inventory", "--state", str(tmp_path)).out
    )
