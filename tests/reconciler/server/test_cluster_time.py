"""A leader's clock that is set neither ends a job before its limit nor lets it run longer, over restarts and other leaders too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from hack.crash.clocks import SteppedClock, share_its_clock
from reconciler.control.control import ControlPlane
from reconciler.control.ledger_site import one_pass
from reconciler.kubernetes.client.api import Api
from reconciler.model.clock import Clock, SystemClock
from reconciler.model.cluster_clock import ClusterClock, KeptTime, boot_of_this_machine
from reconciler.server.cluster_time import ServedTime, cluster_time
from solver.model.quantities import Duration
from tests.reconciler.control.plane import Site, site_at

HOUR_MS = 3_600_000
LIMIT_S, APART_S = 300, 15
STEPS = pytest.mark.parametrize("step", [HOUR_MS, -HOUR_MS])


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with site_at(tmp_path / "site.db") as made:
        yield made


@dataclass
class Planes:
    """Control planes on one store, of which each has the clock of its machine, that may be set."""

    site: Site
    folder: Path
    machine: SteppedClock = field(init=False)
    plane: ControlPlane = field(init=False)

    def __post_init__(self) -> None:
        self.machine = SteppedClock(self.site.clock)
        (self.folder / "boot_id").write_text("a start")
        self.begins()

    def begins(self, on: Clock | None = None, holder: str = "only", *, anew: bool = False) -> None:
        """A process, which knows what is in the store."""
        time = cluster_time(self.site.store, on or self.machine, self.folder / "boot_id", anew=anew)
        keeper = time.keeper(self.site.store.ledger)
        self.plane = replace(self.site.plane(holder), clock=time.clock, keep_time=keeper.keep)

    def boots(self) -> None:
        """The machine was started again."""
        (self.folder / "boot_id").write_text("another start")
        self.begins()

    def passes(self, number: int, apart_s: int = APART_S) -> None:
        """Some, apart from each other."""
        for _ in range(number):
            self.site.clock.advance(apart_s * 1_000)
            one_pass(self.plane)


@pytest.fixture
def planes(site: Site, tmp_path: Path) -> Planes:
    return Planes(site, tmp_path)


def is_kept(planes: Planes, occurs: Callable[[], object]) -> bool:
    """Whether a job runs for as long as it may, and a few passes and messages, if that occurs in the middle of it."""
    planes.site.submit("job", ("sleep", "forever"), limit_s=LIMIT_S)
    planes.passes(4)
    occurs()
    while planes.site.state("job") != "failed":
        planes.passes(1)
    (ran,) = (one for one in planes.site.cluster.intervals if one.job == "job")
    assert ran.end is not None
    return LIMIT_S * 990 <= ran.end - ran.begin <= LIMIT_S * 1_010 + 3 * APART_S * 1_000


@STEPS
def test_a_limit_is_kept_where_the_clock_of_the_leader_is_set(planes: Planes, step: int) -> None:
    assert is_kept(planes, lambda: setattr(planes.machine, "ahead", step))


@STEPS
def test_so_it_is_where_the_control_plane_starts_again_after_that(planes: Planes, step: int) -> None:
    def occurs() -> None:
        planes.machine.ahead = step
        planes.begins()

    assert is_kept(planes, occurs)


@STEPS
def test_so_it_is_where_another_leads_whose_clock_is_wrong_and_the_store_has_one_of_its_own(
    planes: Planes, step: int
) -> None:
    share_its_clock(planes.site.store, planes.site.clock)
    planes.begins()

    def occurs() -> None:
        planes.site.clock.advance(planes.plane.lease)
        planes.begins(SteppedClock(planes.site.clock, step), "other")

    assert is_kept(planes, occurs)


@STEPS
def test_so_it_is_where_the_clock_of_that_store_is_set_and_another_leads_then(planes: Planes, step: int) -> None:
    database = SteppedClock(planes.site.clock)
    share_its_clock(planes.site.store, database)
    planes.begins()

    def occurs() -> None:
        database.ahead = step
        planes.passes(2)  # It is noticed, and kept.
        epoch = planes.site.store.ledger.epoch_of("only")
        assert epoch is not None
        planes.site.store.ledger.resign(epoch)
        planes.begins(holder="other")

    assert is_kept(planes, occurs)


def test_after_a_start_of_the_machine_its_clock_is_taken_as_it_is(planes: Planes) -> None:
    planes.passes(1)
    planes.machine.ahead = HOUR_MS
    planes.boots()
    assert planes.plane.clock.now() == planes.machine.now()


def test_where_no_clock_is_set_the_time_is_kept_once(planes: Planes) -> None:
    kept: list[KeptTime] = []
    ledger: Any = planes.site.store.ledger
    keep = ledger.keep_time

    def counted(epoch: Any, stands: KeptTime) -> None:
        kept.append(stands)
        keep(epoch, stands)

    ledger.keep_time = counted
    written = ledger.written()
    planes.passes(5)
    assert len(kept) == 1
    assert ledger.written() == written
    planes.machine.ahead = HOUR_MS
    planes.passes(10, 25)
    assert 2 <= len(kept) <= 4, "2.5 s have been corrected, and each second is kept"


@STEPS
def test_waiting_times_and_ages_go_on_as_time_passes(planes: Planes, step: int) -> None:
    planes.site.submit("job", ("true",), gpus=8, tasks=99)
    planes.passes(2)
    planes.machine.ahead = step
    before = planes.plane.clock.now()
    planes.passes(4, 25)
    assert 99_000 <= planes.plane.clock.now() - before <= 101_000


@pytest.mark.parametrize(("lease", "leads"), [(1, ""), (3 * HOUR_MS, "only")])
def test_commands_know_whether_a_leader_is_gone_though_the_clock_was_set_back(
    planes: Planes, lease: int, leads: str
) -> None:
    here, ledger = SystemClock(), planes.site.store.ledger
    at = here.now().after(HOUR_MS)
    epoch = ledger.lead("only", at.after(-1_000), Duration(lease))
    ledger.keep_time(epoch, ClusterClock(here, at).ahead_of(boot_of_this_machine(here)))
    assert ledger.leader() == leads


def test_the_clock_of_an_api_server_is_followed_from_its_first_answer(site: Site) -> None:
    machine = SteppedClock(site.clock, HOUR_MS)
    time = ServedTime(machine)
    assert time.clock.now() == machine.now()
    Api._hear(_answering(time), "Thu, 01 Jan 2026 00:00:00 GMT", 0.25)
    assert time.clock.now() == site.clock.now()
    site.clock.advance(10_000)
    Api._hear(_answering(time), "Thu, 01 Jan 2026 00:00:09 GMT", 0.0)
    assert abs(time.clock.now() - site.clock.now()) <= 100
    for said in ("", "yesterday", "Thu, 99 Jan 2026 00:00:09 GMT"):
        Api._hear(_answering(time), said, 0.0)


def _answering(time: ServedTime) -> Any:
    class Client:
        _told_time = staticmethod(time.hear)

    return Client()


@STEPS
def test_a_start_may_take_the_clock_as_it_is_and_so_do_those_after_it(planes: Planes, step: int) -> None:
    planes.passes(4)
    planes.machine.ahead = step
    planes.begins()
    assert planes.plane.clock.now() - planes.site.clock.now() == 0
    planes.begins(anew=True)
    planes.passes(1)
    planes.begins()
    assert planes.plane.clock.now() - planes.site.clock.now() == step
