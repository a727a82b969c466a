"""Quantities read what people write, refuse what is ambiguous, and write what reads back equal."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.model.document import decode, encode
from solver.model.quantities import Cpu, Duration, Instant, Memory, MilliGpu, Quantity

NEVER: tuple[object, ...] = (None, True, "", "soon", [], "-1", float("nan"))
KINDS: list[type[Quantity]] = [Memory, Cpu, Duration, Instant]


@pytest.mark.parametrize(
    ("kind", "written", "value"),
    [
        (Memory, "64Gi", 64 * 2**30),
        (Memory, "2T", 2 * 10**12),
        (Memory, 1024, 1024),
        (Cpu, 96, 96_000),
        (Cpu, 0.5, 500),
        (Cpu, "250m", 250),
        (Cpu, "4", 4000),
        (MilliGpu, 8, 8_000),
        (MilliGpu, 0.5, 500),
        (MilliGpu, 2.007, 2_007),
        (Duration, "72h", 72 * 3_600_000),
        (Duration, "1h30m", 5_400_000),
        (Duration, "100ms", 100),
        (Instant, "1970-01-01T00:00:01Z", 1000),
        (Instant, "2026-11-20T09:00:00.250+01:00", 1_795_161_600_250),
    ],
)
def test_reads(kind: type[Quantity], written: object, value: int) -> None:
    assert kind.parse(written) == value


@pytest.mark.parametrize(
    ("kind", "written"),
    [
        *[(kind, bad) for kind in KINDS for bad in NEVER],
        *[(MilliGpu, bad) for bad in (*NEVER, "8", 0.0001, -1, 2e9)],
        (Memory, 1.5),
        (Memory, -1),
        (Memory, "64gb"),
        (Cpu, 0.0001),
        (Duration, 30),
        (Duration, "30"),
        (Duration, "5m1h"),
        (Instant, "2026-02-30T00:00:00Z"),
        (Instant, "2026-11-20T24:00:00Z"),
        (Instant, "2026-11-20T08:00:00"),
    ],
)
def test_refuses_and_says_what_was_expected(kind: type[Quantity], written: object) -> None:
    with pytest.raises(ValueError, match="expected"):
        kind.parse(written)


@given(st.sampled_from(KINDS), st.integers(0, 2**45))
def test_what_is_written_reads_back_equal(kind: type[Quantity], value: int) -> None:
    assert kind.parse(str(kind(value))) == value


@given(st.integers(0, 10**9))
def test_gpus_are_numbers_in_json_whole_where_they_are_whole(milli: int) -> None:
    written = encode(MilliGpu(milli))
    assert decode(written, MilliGpu) == milli
    assert (b"." in written) == (milli % 1000 != 0)


def test_equal_numbers_of_different_units_are_written_each_in_its_own() -> None:
    written = encode([Cpu(1000), Memory(1000), MilliGpu(1000), Duration(1000), Cpu(1000)])
    assert written == b'["1","1000",1,"1s","1"]'


@given(st.datetimes(min_value=datetime(1900, 1, 1), max_value=datetime(2200, 1, 1), timezones=st.just(UTC)))
def test_the_calendar_agrees_with_the_standard_library(moment: datetime) -> None:
    milliseconds = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    assert Instant.parse(moment.isoformat()) == milliseconds
    assert datetime.fromisoformat(str(Instant(milliseconds))) == moment.replace(
        microsecond=moment.microsecond // 1000 * 1000
    )
