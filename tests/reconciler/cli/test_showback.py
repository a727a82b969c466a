"""`quorate showback`: tables within 80 columns, exact figures for programs, FOCUS, and corrections that rewrite nothing."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import pytest

from reconciler.cli import showback
from reconciler.cli.exits import ExitCode
from reconciler.documents.operations import Operations
from reconciler.model.gpu_use import GpuMinute, NodeMinute, UseFigures, UseSpread, record_of
from reconciler.model.rate_card import Price, Rate, RateCard
from reconciler.protocols.capacity import NodeCapacity
from solver.model.cluster import DeviceId, GpuType, NodeName
from solver.model.inflight import Intent
from solver.model.quantities import Duration, Instant
from solver.model.workload import JobName
from tests.contracts.simulated_worlds import NODES
from tests.reconciler.api.conftest import NOW, Site
from tests.reconciler.cli.conftest import Now, Quorate, on, submitted

HOUR, MINUTE = 3_600_000, 60_000
CARD = RateCard("rates", NOW, "EUR", (Rate(Price.parse("2.5")),))


@dataclass
class Cluster:
    """Nine GPUs of a type with a long name, of which one is not well. Two hours ago `a` took two of them for an hour, and was
    evicted; then `b` took another, and holds it since."""

    site: Site
    now: Now

    def price(self, *cards: RateCard) -> None:
        self.site.operations = Operations(rates=cards)


@pytest.fixture
def cluster(site: Site, now: Now, at_server: object) -> Cluster:
    node, epoch = NODES[0], site.epoch()
    there = tuple(DeviceId(f"{node.name}/{index}") for index in range(9))
    capacity = NodeCapacity("h100-a", GpuType("H100-SXM5-80GB"), there, (*["idle"] * 8, "unhealthy"))  # type: ignore[arg-type]
    site.store.capacities.keep(epoch, {NodeName(node.name): capacity}, NOW)
    site.store.capacities.watch(epoch, NOW, Duration(1))
    submitted(site, "a")
    site.bind("a", on(node, 0, 1))
    stop = Intent("stop", JobName("a"), 1, NOW, NOW.after(1), purpose="evict", beneficiary=JobName("b"))
    site.store.ledger.ask(epoch, stop)
    site.store.ledger.release(epoch, JobName("a"), 1, NOW.after(HOUR))
    submitted(site, "b")
    site.bind("b", on(node, 2))
    site.store.capacities.watch(epoch, NOW.after(2 * HOUR), Duration(2 * HOUR))
    now.advance(2 * 3600)
    return Cluster(site, now)


@pytest.mark.usefixtures("cluster")
def test_tables_of_what_became_of_all_gpus_and_what_had_them(quorate: Quorate) -> None:
    ran = quorate("showback", "--from", "2h", "--by", "job")
    assert ran.exit_code == ExitCode.OK
    assert [" ".join(line.split()) for line in ran.out.splitlines()] == [
        "from 2023-11-15 00:13:20 +02:00 to 2023-11-15 02:13:20 +02:00",
        "",
        "POOL GPU TYPE STATE GPU-HOURS SHARE",
        "h100-a H100-SXM5-80GB allocated 3.00 16.7 %",
        "h100-a H100-SXM5-80GB idle 13.00 72.2 %",
        "h100-a H100-SXM5-80GB unhealthy 2.00 11.1 %",
        "",
        "JOB ALLOCATED EVICTED FAILED WAITING",
        "a 2.00 2.00 0.00 1.00",
        "b 1.00 0.00 0.00 1.00",
        "",
        "GPU-hours. EVICTED and FAILED are work lost since the last checkpoint.",
        "How much of what was allocated was active is unknown: nothing was measured.",
    ]
    assert ran.err == ""


def half_active(cluster: Cluster, minutes: int = 30) -> None:
    """For so long from its first whole minute on, the GPU that `b` holds is half active."""
    node, use = NODES[0].name, UseFigures("gpm", 12, active=UseSpread(50.0))
    first = -(-NOW.after(HOUR) // MINUTE) * MINUTE
    told = [
        NodeMinute(Instant(first + at * MINUTE), (GpuMinute(DeviceId(f"{node}/2"), "GPU-b", record_of(use)),))
        for at in range(minutes)
    ]
    cluster.site.store.gpu_uses.keep(cluster.site.epoch(), {node: told})


def test_what_was_measured_is_active_or_idle_held_and_the_rest_is_unknown(cluster: Cluster, quorate: Quorate) -> None:
    half_active(cluster)
    ran = quorate("showback", "--from", "2h", "--by", "job")
    assert [" ".join(line.split()) for line in ran.out.splitlines()][-6:] == [
        "JOB ALLOCATED ACTIVE IDLE-HELD EVICTED FAILED WAITING",
        "a 2.00 ? ? 2.00 0.00 1.00",
        "b 1.00 0.25+? 0.25+? 0.00 0.00 1.00",
        "",
        "GPU-hours. EVICTED and FAILED are work lost since the last checkpoint.",
        "ACTIVE and IDLE-HELD are what was measured of ALLOCATED; +?: not all was.",
    ]
    rows = list(csv.DictReader(io.StringIO(quorate("showback", "--by", "job", "-o", "csv").out)))
    assert [(row["name"], row["active"], row["idle_held"], row["unmeasured"]) for row in rows] == [
        ("a", "", "", "7200"),
        ("b", "900", "900", "1800"),
    ]


def test_tables_fit_80_columns(cluster: Cluster, quorate: Quorate) -> None:
    cluster.price(CARD)
    half_active(cluster)
    for by in ("queue", "user", "class", "job", "gpu-type"):
        ran = quorate("showback", "--from", "2h", "--by", by)
        assert [line for line in ran.out.splitlines() if len(line) > 80] == []
        assert "EUR" in ran.out


def test_many_rows_are_added_up_in_a_table_and_all_there_elsewhere(
    cluster: Cluster, quorate: Quorate, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.price(CARD)
    monkeypatch.setattr(showback, "SHOWN_MAX", 1)
    ran = quorate("showback", "--from", "2h", "--by", "job")
    assert ["(1", "more", "row)", "1.00", "0.00", "0.00", "1.00", "2.50"] in [
        line.split() for line in ran.out.splitlines()
    ]
    assert len(quorate("showback", "--from", "2h", "--by", "job", "-o", "csv").out.splitlines()) == 3


def test_exact_seconds_for_programs(cluster: Cluster, quorate: Quorate) -> None:
    cluster.now.instant = NOW.after(2 * HOUR + 1)
    found = json.loads(quorate("showback", "--from", str(NOW), "--by", "job", "-o", "json").out)
    assert {row["name"]: row["allocated"] for row in found["rows"]} == {"a": "7200", "b": "3600.001"}
    (kind,) = found["capacity"]
    states = sum(Decimal(kind[state]) for state in ("allocated", "idle", "reserved", "unhealthy", "partitioning"))
    assert states == Decimal(kind["capacity"]) == 9 * Decimal("7200.001")
    rows = list(csv.DictReader(io.StringIO(quorate("showback", "--by", "job", "-o", "csv").out)))
    assert [(row["name"], row["allocated"], row["active"], row["cost"], row["redacted"]) for row in rows] == [
        ("a", "7200", "", "", "false"),
        ("b", "3600.001", "", "", "false"),
    ]


def test_a_parquet_file_has_the_same_rows_and_says_of_which_window(
    cluster: Cluster, quorate: Quorate, tmp_path: Path
) -> None:
    from pyarrow import parquet

    cluster.price(CARD)
    half_active(cluster)
    file = tmp_path / "rows.parquet"
    ran = quorate("showback", "--from", "2h", "--by", "job", "-o", "parquet", "--out", str(file))
    assert (ran.exit_code, ran.out, ran.err) == (ExitCode.OK, "", "")
    table = parquet.read_table(file)
    rows = json.loads(quorate("showback", "--from", "2h", "--by", "job", "-o", "json").out)["rows"]
    named = [{re.sub("[A-Z]", lambda it: f"_{it[0].lower()}", name): row[name] for name in row} for row in rows]
    assert set(table.column_names) == set(named[0])
    for read, told in zip(table.to_pylist(), named, strict=True):
        assert read == {name: Decimal(told[name]) if isinstance(read[name], Decimal) else told[name] for name in told}
    assert [row["active"] for row in table.to_pylist()] == [None, Decimal(900)]
    assert table.schema.metadata == {
        b"quorate.by": b"job",
        b"quorate.start": str(NOW).encode(),
        b"quorate.end": str(NOW.after(2 * HOUR)).encode(),
        b"quorate.currency": b"EUR",
    }


@pytest.mark.usefixtures("cluster")
def test_without_the_library_for_parquet_it_is_told_what_to_install(
    quorate: Quorate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    ran = quorate("showback", "-o", "parquet", "--out", str(tmp_path / "rows"))
    assert (ran.exit_code, list(tmp_path.glob("rows"))) == (ExitCode.ERROR, [])
    assert "pip install 'quorate[parquet]'" in ran.err


def test_dates_begin_in_the_zone_that_is_asked_for(cluster: Cluster, quorate: Quorate) -> None:
    def begun(*arguments: str) -> str:
        return str(json.loads(quorate("showback", *arguments, "-o", "json").out)["askedFrom"])

    assert begun("--from", "2023-11-14") == "2023-11-13T22:00:00Z"
    assert begun("--from", "2023-11-14", "--time-zone", "America/New_York") == "2023-11-14T05:00:00Z"
    assert begun("--from", "2023-11-14T01:00:00Z") == "2023-11-14T01:00:00Z"
    told = quorate("showback", "--time-zone", "America/New_York").out.splitlines()[0]
    assert told == "from 2023-11-14 17:13:20 America/New_York to 2023-11-14 19:13:20 America/New_York"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--time-zone", "Mars"), "there is no time zone Mars"),
        (("--from", "yesterday"), "from: "),
        (("-o", "focus"), "nothing has a price"),
        (("-o", "parquet"), "-o parquet needs a file"),
        (("--issued", __file__), "--issued is for -o focus"),
        (("-o", "focus", "--issued", __file__), "it does not have the columns of such an export"),
    ],
)
@pytest.mark.usefixtures("cluster")
def test_what_can_not_be_done_is_told(quorate: Quorate, arguments: tuple[str, ...], told: str) -> None:
    ran = quorate("showback", *arguments)
    assert ran.exit_code != ExitCode.OK
    assert (ran.out, told in ran.err) == ("", True)


def test_what_is_not_known_is_told(cluster: Cluster, quorate: Quorate) -> None:
    cluster.price(replace_start(CARD, NOW.after(HOUR)))
    cluster.now.advance(3600)
    ran = quorate("showback", "--from", "4h", "--by", "job")
    assert "capacity is on record from 2023-11-14T22:13:20Z on" in ran.err
    assert "for 1h no control plane was there to see changes" in ran.err
    assert "2.00 GPU-hours have no price" in ran.err
    assert [line.split()[-1] for line in ran.out.splitlines() if line.startswith(("a ", "b "))] == ["?", "5.00"]
    assert "5.00+?" in quorate("showback", "--from", "4h").out


def replace_start(card: RateCard, start: Instant) -> RateCard:
    return RateCard(card.name, start, card.currency, card.rates)


def focus(quorate: Quorate, *arguments: str) -> list[dict[str, str]]:
    ran = quorate("showback", "--from", "2h", "--by", "job", "-o", "focus", *arguments)
    assert ran.exit_code == ExitCode.OK, ran.err
    return list(csv.DictReader(io.StringIO(ran.out)))


def test_focus_has_the_same_time_and_cost(cluster: Cluster, quorate: Quorate) -> None:
    cluster.price(CARD)
    rows = focus(quorate)
    assert {
        (row["ResourceId"], row["ChargePeriodStart"], row["ConsumedQuantity"], row["BilledCost"]) for row in rows
    } == {
        ("a", "2023-11-14T22:13:20Z", "2.0", "5.0"),
        ("b", "2023-11-14T22:13:20Z", "0.777777778", "1.944444445"),
        ("b", "2023-11-15T00:00:00Z", "0.222222222", "0.555555555"),
    }
    assert {(row["SubAccountId"], row["BillingCurrency"], row["InvoiceIssuerName"]) for row in rows} == {
        ("team", "EUR", "Quorate")
    }


def test_a_correction_adds_lines_and_rewrites_none(cluster: Cluster, quorate: Quorate, tmp_path: Path) -> None:
    cluster.price(CARD)
    issued, more = tmp_path / "issued.csv", tmp_path / "more.csv"
    window = "showback", "--from", str(NOW), "--to", str(NOW.after(2 * HOUR)), "-o", "focus", "--per", "month"
    assert quorate(*window, "--out", str(issued)).exit_code == ExitCode.OK
    before = issued.read_bytes()
    assert len(quorate(*window, "--issued", str(issued)).out.splitlines()) == 1, "nothing is to be corrected"

    dearer = RateCard("rates", NOW, "EUR", (Rate(Price.parse("3")),))
    cluster.price(dearer)
    assert (
        quorate(*window, "--issued", str(issued), "--out", str(more), "--invoiced-until", "2023-12-01").exit_code == 0
    )
    added = list(csv.DictReader(io.StringIO(more.read_text())))
    assert [(row["ListUnitPrice"], row["BilledCost"], row["ChargeClass"]) for row in added] == [
        ("2.5", "-7.5", "Correction"),
        ("3.0", "9.0", "Correction"),
    ]
    assert issued.read_bytes() == before
    both = "--issued", str(issued), "--issued", str(more)
    assert len(quorate(*window, *both).out.splitlines()) == 1, "together they say what is so"
    # A month that was not invoiced has further charges, and no corrections.
    current = csv.DictReader(
        io.StringIO(quorate(*window, "--issued", str(issued), "--invoiced-until", "2023-11-01").out)
    )
    assert {row["ChargeClass"] for row in current} == {""}


@pytest.mark.parametrize(
    "spoil", [lambda line: line[:-40], lambda line: line + ",x", lambda line: line.replace("2.5", "2,5")]
)
def test_an_export_that_is_not_as_it_was_written_is_refused(
    cluster: Cluster, quorate: Quorate, tmp_path: Path, spoil: Callable[[str], str]
) -> None:
    cluster.price(CARD)
    issued = tmp_path / "issued.csv"
    quorate("showback", "-o", "focus", "--out", str(issued))
    first, second, *_ = issued.read_text().splitlines()
    issued.write_text(f"{first}\n{spoil(second)}\n")
    ran = quorate("showback", "-o", "focus", "--issued", str(issued))
    assert (ran.exit_code, ran.out, f"{issued}:2: the line is not whole" in ran.err) == (ExitCode.ERROR, "", True)
