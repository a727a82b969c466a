"""Minutes of exporters come into the same book as agents' do, over real HTTP; what goes wrong is told, and in no figure."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import structlog
from structlog.testing import capture_logs

from reconciler.control.gpu_use import UseBook
from reconciler.control.use_summary import LatestUse
from reconciler.kubernetes.use.boards import Holdings
from reconciler.kubernetes.use.reader import ExportedUse
from reconciler.kubernetes.use.sources import Asked, ExporterSource, PrometheusSource, UseSource
from reconciler.model.clock import SystemClock, VirtualClock
from reconciler.model.gpu_use import NodeMinute, use_of
from solver.model.cluster import NodeName
from solver.model.quantities import Duration, Instant
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job
from tests.e2e.control_plane import until
from tests.e2e.test_prometheus import prometheus
from tests.reconciler.kubernetes.use.exporter import N1, N2, NOW, busy, exporter, job_on, line, node_of, text, world

INTERVAL = Duration(30_000)


@dataclass
class Site:
    """A reader of exporters at 127.0.0.1, in a cluster with two nodes of four GPUs."""

    url: str
    answer: str = ""
    known: Holdings | None = None
    leads: bool = True
    clock: VirtualClock = field(default_factory=lambda: VirtualClock(NOW))

    def __post_init__(self) -> None:
        self.book = book_of(self.clock)
        self.reader = reader_of(ExporterSource(self.url), self)

    def pass_minutes(self, minutes: int = 2) -> None:
        for _ in range(2 * minutes):
            self.reader.look()
            self.clock.advance(INTERVAL)

    def heard(self) -> Mapping[NodeName, NodeMinute]:
        return self.book.latest()

    def figures(self) -> dict[str, float]:
        return {sample.labels["state"]: sample.value for each in self.reader.collect() for sample in each.samples}


def book_of(clock: VirtualClock | SystemClock) -> UseBook:
    return UseBook(clock, {name: node_of(name) for name in (N1, N2)}.get, lambda: Duration(86_400_000))


def reader_of(source: UseSource, site: Site) -> ExportedUse:
    known, leads = (lambda: site.known), (lambda: site.leads)
    return ExportedUse(source, site.book, known, leads, site.clock, structlog.get_logger(), INTERVAL)


@dataclass
class Told:
    """What was read before, and then nothing."""

    given: Iterator[Asked]

    def read(self, nodes: Collection[NodeName], since: Instant, now: Instant) -> Asked:
        return next(self.given, Asked(()))


@pytest.fixture
def site() -> Iterator[Site]:
    with exporter(lambda: made.answer) as port:
        made = Site(f"http://127.0.0.1:{port}/metrics", known=world(job_on("train", N1, 0, 1), nodes=(N1,)))
        yield made


def active(minute: NodeMinute) -> dict[str, float]:
    found = {str(gpu.gpu): use_of(gpu.record) for gpu in minute.gpus}
    return {gpu: use.active.mean for gpu, use in found.items() if use and use.active}


def test_a_minute_of_an_exporter_is_a_minute_of_its_node(site: Site) -> None:
    site.answer = text("n1", {0: ("", busy(0.0)), 2: ("train", busy(0.8)), 3: ("train", busy(0.4))})
    site.pass_minutes()
    minute = site.heard()[N1]
    assert active(minute) == {"n1/0": 80.0, "n1/1": 40.0, "n1/2": 0.0}
    assert {str(gpu.gpu): gpu.uuid for gpu in minute.gpus}["n1/0"] == "GPU-n1-2"
    use = use_of(minute.gpus[0].record)
    assert use is not None
    assert (use.source, use.covered) == ("dcgm-engine", 2)
    assert use.active is not None
    assert use.active.p10 is None
    assert site.figures() == {"told": 1, "silent": 0}


def test_jobs_and_their_gpus_have_these_figures(site: Site) -> None:
    site.answer = text("n1", {2: ("train", busy(0.8)), 3: ("train", busy(0.4))})
    site.pass_minutes()
    jobs: tuple[Job, ...] = (job_on("train", N1, 0, 1),)
    seen: Snapshot = snapshot_of(site.clock.now(), [node_of(N1)], jobs)
    now = LatestUse(site.book.latest, site.clock).of(seen)
    assert {name: (use.gpus, use.measured, round(use.active, 2)) for name, use in now.jobs.items()} == {
        "train": (2, 2, 1.2)
    }


def test_an_exporter_that_is_dead_is_told_once_and_its_node_is_silent_and_not_idle(site: Site) -> None:
    site.known = world(nodes=(N1, N2))
    site.answer = text("n1", {0: ("", busy(0.5))})
    with capture_logs() as lines:
        site.pass_minutes(4)
    assert [line["message"] for line in lines if line["event"] == "gpu-use-silent"] == [
        "nothing is told of the GPUs of n2"
    ]
    assert site.figures() == {"told": 1, "silent": 1}
    assert N2 not in site.heard()
    site.reader.source = ExporterSource("http://127.0.0.1:1/metrics")
    with capture_logs() as lines:
        site.pass_minutes(4)
    (unread,) = [line for line in lines if line["event"] == "gpu-use-unreadable"]
    assert unread["message"].startswith("1 of 1 exporters tell nothing: http://127.0.0.1:1/metrics: ")
    assert site.figures() == {"told": 0, "silent": 2}


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("<html>sign in</html>", "exporters tell nothing"),
        ('DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1"} 5\n', "name no node (label Hostname)"),
    ],
)
def test_what_is_no_exporter_is_told(site: Site, answer: str, told: str) -> None:
    site.answer = answer
    with capture_logs() as lines:
        site.pass_minutes()
    assert [told in line["message"] for line in lines if line["event"] == "gpu-use-unreadable"] == [True]
    assert site.heard() == {}


def test_samples_from_the_future_are_refused_and_counted(site: Site) -> None:
    ahead = int(NOW.after(600_000))
    site.answer = line("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 0.5, 0, "n1").replace(" 0.5", f" 0.5 {ahead}")
    site.pass_minutes()
    assert site.heard() == {}
    assert site.book.refused()["future"] > 0


def test_a_board_on_two_nodes_counts_on_one_and_one_that_moved_counts_where_it_is_then(site: Site) -> None:
    site.known = world()
    moved = line("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 0.5, 0, "n2", UUID="GPU-n1-0")
    site.answer = text("n1", {0: ("", {"DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.2})}) + moved
    site.pass_minutes(2)
    assert site.book.refused() == {"two-places": 1}
    assert set(site.heard()) == {N1}
    site.answer = moved
    site.pass_minutes(3)
    assert active(site.heard()[N2]) == {"n2/0": 50.0}


def test_without_the_lead_nothing_is_asked(site: Site) -> None:
    site.answer = text("n1", {0: ("", busy(0.5))})
    site.leads = False
    site.pass_minutes()
    assert site.heard() == {}
    assert site.figures() == {}


def test_each_address_of_a_name_is_asked(site: Site) -> None:
    """As a headless Service has them."""
    site.known = world()
    with ExitStack() as served:
        port = served.enter_context(exporter(lambda: text("n1", {0: ("", busy(0.25))}), "127.0.0.2"))
        served.enter_context(exporter(lambda: text("n2", {0: ("", busy(0.75))}), "127.0.0.3", port))
        found = {"127.0.0.2", "127.0.0.3", "127.0.0.4"}
        site.reader.source = ExporterSource(f"http://dcgm-exporter.example.com:{port}/metrics", lambda *_: found)
        with capture_logs() as lines:
            site.pass_minutes()
    assert {node: active(minute) for node, minute in site.heard().items()} == {
        N1: {"n1/0": 25.0},
        N2: {"n2/0": 75.0},
    }
    assert [line["message"].partition(":")[0] for line in lines if line["event"] == "gpu-use-unreadable"] == [
        "1 of 3 exporters tell nothing"
    ]


def test_a_prometheus_that_does_not_answer_or_says_something_else_is_told(site: Site) -> None:
    site.answer = "<html>sign in</html>"
    for url in ("http://127.0.0.1:1", site.url):
        site.reader.source = PrometheusSource(url, INTERVAL)
        with capture_logs() as lines:
            site.pass_minutes()
        assert [line["message"].startswith(f"{url}: ") for line in lines if line["event"] == "gpu-use-unreadable"] == [
            True
        ]
    assert site.heard() == {}


@pytest.mark.thorough
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="Prometheus is not installed (Debian's prometheus)")
def test_a_real_prometheus_tells_what_real_http_told_it(tmp_path: Path) -> None:
    answer = text("n1", {0: ("", busy(0.0)), 1: ("train", busy(0.8))})
    with exporter(lambda: answer) as port:
        scrape = {
            "job_name": "dcgm",
            "static_configs": [{"targets": [f"127.0.0.1:{port}"], "labels": {"pod": "exporter", "namespace": "gpu"}}],
        }
        with prometheus(tmp_path, [scrape]) as asked:
            until(
                "it has scraped some",
                lambda: (asked.value('count_over_time(DCGM_FI_DEV_FB_USED{gpu="1"}[1m])') or 0) > 4,
            )
            clock = SystemClock()
            source = PrometheusSource(asked.url, Duration(1_000))
            found = source.read([N1, N2], clock.now().after(-60_000), clock.now())
    assert found.problem == ""
    assert {one.pod for one in found.readings if one.uuid == "GPU-n1-1"} == {("team", "train")}
    moments = {one.at for one in found.readings if one.uuid == "GPU-n1-1"}
    assert len(moments) > 4
    site = Site("http://127.0.0.1:1/metrics", known=world(job_on("train", N1, 3), nodes=(N1,)))
    site.clock = VirtualClock(Instant(max(moments)))
    site.book, given = book_of(site.clock), iter([found])
    site.reader = reader_of(Told(given), site)
    site.reader.look()
    site.clock.advance(120_000)
    site.reader.look()
    assert active(site.heard()[N1])["n1/3"] == 80.0
