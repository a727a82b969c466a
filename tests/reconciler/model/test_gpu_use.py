"""Figures of GPUs' use are coded so that nothing unknown is 0, nothing measured unknown, and records compare as they count."""

from __future__ import annotations

import math
import random

import pytest

from reconciler.model.gpu_use import (
    METRICS,
    RECORD_BYTES,
    UNKNOWN,
    Metric,
    UseFigures,
    UseSpread,
    code_of,
    is_record,
    record_of,
    spread_of,
    use_from,
    use_of,
    value_of,
)


@pytest.mark.parametrize("metric", METRICS)
def test_every_code_is_the_code_of_its_value(metric: Metric) -> None:
    codes = range(1, 256 if metric == "nvlink" else 202)
    values = [value_of(metric, code) for code in codes]
    assert [code_of(metric, value) for value in values] == list(codes)
    assert values[0] == 0
    assert value_of(metric, 0) is None


@pytest.mark.parametrize("nonsense", [None, -0.1, 101.5, math.nan, math.inf, 9223372036854775794.0])
def test_what_can_be_no_percentage_is_not_known(nonsense: float | None) -> None:
    assert code_of("active", nonsense) == 0


def test_a_counter_that_was_read_a_little_late_is_full() -> None:
    assert value_of("active", code_of("active", 100.4)) == 100


def test_rates_are_kept_to_three_per_cent() -> None:
    for rate in (1.0, 17.0, 450.0, 26_000.0, 900_000.0):
        kept = value_of("nvlink", code_of("nvlink", rate))
        assert kept is not None
        assert abs(kept - rate) <= 0.03 * (1 + rate)


def test_quantiles_need_ten_samples_and_are_samples() -> None:
    assert spread_of([float(each) for each in range(9)]) == UseSpread(4.0, 0.0)
    values = [float(each) for each in range(1, 21)]
    random.Random(1).shuffle(values)
    assert spread_of(values) == UseSpread(10.5, 1.0, 2.0, 18.0)


def test_a_record_says_what_it_was_made_of() -> None:
    use = use_from("gpm", 12, {"active": [50.0] * 12, "nvlink": [0.0] * 12, "dram": []})
    record = record_of(use)
    assert len(record) == RECORD_BYTES
    assert is_record(record)
    assert use_of(record) == UseFigures(
        "gpm", 12, active=UseSpread(50.0, 50.0, 50.0, 50.0), nvlink=UseSpread(0.0, 0.0, 0.0, 0.0)
    )
    assert use_of(UNKNOWN) is None


def test_the_better_source_counts_then_more_samples() -> None:
    by_gpm, by_rates = (
        UseFigures("gpm", 1, active=UseSpread(0.0)),
        UseFigures("utilisation", 60, active=UseSpread(100.0)),
    )
    assert record_of(by_gpm) > record_of(by_rates)
    assert record_of(UseFigures("gpm", 256, active=UseSpread(0.0))) > record_of(
        UseFigures("gpm", 255, active=UseSpread(100.0))
    )


@pytest.mark.parametrize(
    "record",
    [
        b"",
        UNKNOWN,
        UNKNOWN[:-1],
        bytes((9, 0, 1)) + bytes(24),  # no such source
        bytes((1, 0, 0)) + bytes(24),  # of no sample
        bytes((1, 0, 1, 202)) + bytes(23),  # above 100 %
        bytes((1, 0, 1)) + bytes(25),
    ],
)
def test_what_can_not_be_read_is_no_record(record: bytes) -> None:
    assert not is_record(record)
