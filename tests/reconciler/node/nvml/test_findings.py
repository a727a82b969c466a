"""What agents report of hardware: GPUs with their errors, network ports, and whether a device is free again."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import pynvml
import pytest

from reconciler.model.clock import SystemClock
from reconciler.model.facts import GpuFacts, NicFacts, NodeFacts, Xid
from reconciler.node.agent.nics import read_nics
from reconciler.node.local.cleanup import GpuUnreadableError
from reconciler.node.local.gpus import DeclaredGpus
from reconciler.node.local_driver import WhoseGpus, driver_for, gpus_of, looks_of, use_of
from reconciler.node.nvml.findings import DeviceUse, Findings
from reconciler.node.nvml.gpus import NvmlGpus
from reconciler.node.nvml.library.nvml import NvmlDriver
from reconciler.node.nvml.xids import KEPT, XidWatch
from reconciler.protocols.backend import PartitionGpu
from solver.model.cluster import DeviceId, MigInstance
from solver.model.quantities import Instant, Memory
from tests.reconciler.node.nvml.card import Card
from tests.reconciler.node.nvml.conftest import Install
from tests.reconciler.node.nvml.library import Library
from tests.reconciler.node.nvml.made import card_of, workstation
from tests.reconciler.node.nvml.test_gpus import AT, GPU, NODE, node_of


class Ticking(SystemClock):
    """A clock that counts."""

    def __init__(self) -> None:
        self.ticks = 0

    def now(self) -> Instant:
        self.ticks += 1
        return Instant(self.ticks)


@pytest.fixture
def library(install: Install) -> Library:
    return install(Library(card_of("H100-80GB", number) for number in range(3)))


@pytest.fixture
def gpus(library: Library, driver: NvmlDriver, tmp_path: Path) -> NvmlGpus:
    return NvmlGpus(tmp_path / "gpus", driver)


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits a second for a thread to end."""
    monkeypatch.setattr("reconciler.node.nvml.library.nvml._LOOK_MS", 20)


@pytest.fixture
def watch(driver: NvmlDriver) -> XidWatch:
    return XidWatch(driver, Ticking())


@pytest.fixture
def findings(gpus: NvmlGpus, driver: NvmlDriver, watch: XidWatch, tmp_path: Path) -> Findings:
    return Findings(gpus, driver, watch, lambda: NODE, tmp_path / "sys")


def test_what_is_wrong_with_a_gpu_is_reported_of_that_one(findings: Findings, library: Library) -> None:
    sick = library.cards[1]
    sick.uncorrectable, sick.remapped, sick.temperature = 3, (0, 2, 0, 1), 91
    sick.reasons = pynvml.nvmlClocksEventReasonHwThermalSlowdown | pynvml.nvmlClocksEventReasonSwPowerCap
    library.cards[2].remapped = (3, 0, 1, 0)
    sick.pids, sick.used = [(7, None), (7, None), (5, None)], 2**30
    facts = findings.read(AT)
    assert facts is not None
    assert (facts.node, facts.at) == ("n1", AT)
    well, reported, waiting = facts.gpus
    assert (waiting.remap_pending, waiting.remap_failed) == (True, False)
    assert well == GpuFacts(
        DeviceId("n1/0"),
        library.cards[0].uuid,
        uncorrectable_errors=0,
        remap_failed=False,
        remap_pending=False,
        temperature_c=41,
        memory_used=Memory(600 * 2**20),
        clique="",
    )
    assert reported == GpuFacts(
        DeviceId("n1/1"),
        sick.uuid,
        uncorrectable_errors=3,
        remap_failed=True,
        remap_pending=False,
        throttle_reasons=("hardware-thermal", "power-cap"),
        temperature_c=91,
        processes=(5, 7),
        memory_used=Memory(2**30),
        clique="",
    )


def test_a_lost_gpu_is_reported_as_such_with_the_errors_before_it(
    findings: Findings, watch: XidWatch, library: Library
) -> None:
    findings.read(AT)
    watch._note(NvmlDriver().gpus()[1], 79)
    library.cards[1].lost = True
    facts = findings.read(AT)
    assert facts is not None
    assert facts.gpus[1] == GpuFacts(DeviceId("n1/1"), library.cards[1].uuid, lost=True, xids=(Xid(79, Instant(1)),))


def test_a_gpu_that_was_never_there_is_lost_too(
    gpus: NvmlGpus, driver: NvmlDriver, watch: XidWatch, tmp_path: Path
) -> None:
    facts = Findings(gpus, driver, watch, lambda: node_of(4), tmp_path).read(AT)
    assert facts is not None
    assert facts.gpus[3] == GpuFacts(DeviceId("n1/3"), lost=True)


def test_nothing_is_told_of_a_machine_that_is_no_node_yet(gpus: NvmlGpus, driver: NvmlDriver, watch: XidWatch) -> None:
    assert Findings(gpus, driver, watch, lambda: None).read(AT) is None


def test_what_a_card_has_not_is_not_zero(install: Install, tmp_path: Path) -> None:
    install(Library([workstation()]))
    driver = NvmlDriver()
    findings = Findings(NvmlGpus(tmp_path, driver), driver, XidWatch(driver, Ticking()), lambda: node_of(1))
    told = findings.read(AT)
    assert told is not None
    (facts,) = told.gpus
    assert (facts.uncorrectable_errors, facts.remap_failed, facts.temperature_c) == (None, None, None)


def test_xids_are_heard_as_they_come_and_the_newest_are_kept(watch: XidWatch, library: Library) -> None:
    for number in range(KEPT + 2):
        library.events.put((library.cards[0], number))
    library.events.put((library.cards[2], 79))
    watch.start()
    first, _, third = NvmlDriver().gpus()
    while not watch.heard(third):
        Event().wait(0.01)
    watch.stop()
    assert [xid.number for xid in watch.heard(first)] == list(range(2, KEPT + 2))
    assert [xid.number for xid in watch.heard(third)] == [79]
    assert watch.failure == ""
    assert library.registered == [], "the set of events is given back"


def test_a_lost_gpu_neither_ends_the_listening_nor_makes_it_spin(driver: NvmlDriver, library: Library) -> None:
    heard: list[int] = []

    class Rests(Event):
        """Counts them; the GPU comes back after the second."""

        count = 0

        def wait(self, timeout: float | None = None) -> bool:
            self.count += 1
            library.cards[0].lost = self.count < 2
            return self.is_set()

    def hear(_: str, number: int) -> None:
        heard.append(number)
        stopped.set()

    stopped = Rests()
    library.events.put((library.cards[1], 31))
    library.lost_when_waiting = library.cards[0]
    driver.listen(stopped, hear)
    assert heard == [31]
    assert (stopped.count, library.waits) == (2, 3), "one rest for each time that it was lost"


def test_who_can_not_listen_says_why(install: Install) -> None:
    install(Library([Card(0)], missing=["nvmlEventSetCreate"]))
    watch = XidWatch(NvmlDriver(), Ticking())
    watch.start()
    watch.stop()
    assert "Function Not Found" in watch.failure


def test_a_device_is_free_when_nobody_is_in_it(gpus: NvmlGpus, driver: NvmlDriver, library: Library) -> None:
    card, small, large = library.cards[0], MigInstance("1g.10gb", 6), MigInstance("3g.40gb", 0)
    gpus.partition(PartitionGpu(NODE.name, GPU, 1, (small, large)), [NODE], (), AT)
    inside = next(part.id for part in card.parts if part.start == 0)
    card.pids = [(9, inside)]
    use = DeviceUse(gpus, driver, lambda: (NODE,))
    assert use.processes(large.id_on(GPU)) == (9,)
    assert use.processes(small.id_on(GPU)) == ()
    assert use.processes(GPU) == (9,)
    assert use.memory_used(small.id_on(GPU)) == use.memory_used(DeviceId("n1/1")) == Memory(600 * 2**20)


def test_a_device_that_can_not_be_asked_is_not_free(gpus: NvmlGpus, driver: NvmlDriver, library: Library) -> None:
    use = DeviceUse(gpus, driver, lambda: (NODE,))
    with pytest.raises(GpuUnreadableError, match="shows no such device"):
        use.processes(DeviceId("n1/0/1g.10gb@0"))
    use.processes(GPU)
    library.cards[0].lost = True
    with pytest.raises(GpuUnreadableError, match="Restart the node"):
        use.memory_used(GPU)


def test_an_agent_looks_at_the_gpus_that_its_backend_gives_to_tasks(library: Library, tmp_path: Path) -> None:
    NvmlGpus(tmp_path, NvmlDriver()).seats()
    library.cards.reverse()
    looks = looks_of(driver_for("auto", tmp_path), tmp_path, lambda: NODE, Ticking())
    assert looks.watch is not None
    library.events.put((library.cards[0], 94))
    while not (facts := looks.read(AT)) or not facts.gpus[2].xids:
        Event().wait(0.01)
    looks.watch.stop()
    assert [gpu.uuid for gpu in facts.gpus] == [card.uuid for card in reversed(library.cards)]


def test_of_simulated_gpus_there_is_nothing_to_read(install: Install, tmp_path: Path) -> None:
    install(Library())
    both: tuple[WhoseGpus, ...] = ("auto", "declared")
    for whose in both:
        looks = looks_of(driver_for(whose, tmp_path), tmp_path, lambda: NODE, Ticking())
        assert looks.read(AT) == NodeFacts(NODE.name, AT, nics=read_nics()), "none of them is lost"
        assert isinstance(gpus_of(driver_for(whose, tmp_path), tmp_path), DeclaredGpus)


def test_where_there_is_no_driver_ports_alone_are_looked_at(install: Install, tmp_path: Path) -> None:
    install(Library(failing=9))
    looks = looks_of(driver_for("auto", tmp_path), tmp_path, lambda: NODE, Ticking())
    assert looks.read(AT) == NodeFacts(NODE.name, AT, nics=read_nics())
    assert looks_of(driver_for("auto", tmp_path), tmp_path, lambda: None, Ticking()).read(AT) is None
    assert use_of(driver_for("auto", tmp_path), tmp_path, lambda: [NODE]) is None


def port(sys: Path, name: str, **said: str) -> None:
    folder = sys / name
    folder.mkdir(parents=True)
    for file, text in said.items():
        (folder / file).write_text(f"{text}\n")


def test_ports_say_whether_they_are_up_and_how_fast(tmp_path: Path) -> None:
    for name, said in {
        "eth0": {"operstate": "up", "speed": "100000", "device": ""},
        "eth1": {"operstate": "down", "speed": "-1", "device": ""},
        "eth2": {"operstate": "up", "device": ""},
        "lo": {"operstate": "unknown"},
        "docker0": {"operstate": "up", "speed": "10000"},
    }.items():
        port(tmp_path / "net", name, **said)
    port(tmp_path / "infiniband", "mlx5_0/ports/1", state="4: ACTIVE", rate="400 Gb/sec (4X NDR)")
    port(tmp_path / "infiniband", "mlx5_1/ports/1", state="1: DOWN", rate="2.5 Gb/sec (1X SDR)")
    assert read_nics(tmp_path) == (
        NicFacts("eth0", True, 100_000),
        NicFacts("eth1", False),
        NicFacts("eth2", True),
        NicFacts("mlx5_0/1", True, 400_000),
        NicFacts("mlx5_1/1", False),
    )


def test_a_machine_without_them_has_no_ports(tmp_path: Path) -> None:
    assert read_nics(tmp_path) == ()
    assert all(nic.name for nic in read_nics())


def test_an_agent_tells_which_nvlink_domain_its_gpus_are_in(library: Library, tmp_path: Path) -> None:
    for card in library.cards:
        card.cluster = bytes(range(16))
    library.cards[2].cluster = bytes(16)
    looks = looks_of(driver_for("auto", tmp_path), tmp_path, lambda: NODE, Ticking())
    facts, clique = looks.read(AT), "00010203-0405-0607-0809-0a0b0c0d0e0f.7"
    assert looks.watch is not None
    looks.watch.stop()
    assert facts is not None
    assert [gpu.clique for gpu in facts.gpus] == [clique, clique, ""]
