"""Times, memory, GPUs and dependencies as Slurm writes them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reconciler.documents.slurm.amounts import GpuRequest, count, dependencies, gpus, gres, memory, seconds


@pytest.mark.parametrize(
    ("written", "limit_s"),
    [
        ("90", 5_400),
        ("1:30", 90),
        ("1:30:00", 5_400),
        ("2-12", 216_000),
        ("2-12:30", 217_800),
        ("2-0:0:5", 172_805),
        ("0", None),
        ("00:00:00", None),
        ("UNLIMITED", None),
        ("infinite", None),
    ],
)
def test_every_way_to_write_a_time(written: str, limit_s: int | None) -> None:
    assert seconds(written) == limit_s


@pytest.mark.parametrize(
    ("written", "amount"),
    [("4000", 4000 * 2**20), ("512K", 512 * 2**10), ("1M", 2**20), ("64G", 2**36), ("64gb", 2**36), ("2T", 2**41)],
)
def test_memory_is_counted_in_powers_of_1024(written: str, amount: int) -> None:
    assert memory(written) == amount


@pytest.mark.parametrize(
    ("written", "asked"),
    [
        ("gpu", GpuRequest(1)),
        ("gpu:2", GpuRequest(2)),
        ("gpu:0", GpuRequest(0)),
        ("gpu:H100", GpuRequest(1, "H100")),
        ("gpu:H100:4", GpuRequest(4, "H100")),
        ("shard:3,gpu:2", GpuRequest(2)),
        ("shard:3", None),
    ],
)
def test_gpus_among_generic_resources(written: str, asked: GpuRequest | None) -> None:
    assert gres(written) == asked


def test_gpus_have_a_type_or_none() -> None:
    assert (gpus("4"), gpus("H100:4")) == (GpuRequest(4), GpuRequest(4, "H100"))


def test_dependencies_name_jobs() -> None:
    assert dependencies("afterok:a:b,afterany:c") == [
        {"job": "a", "condition": "afterok"},
        {"job": "b", "condition": "afterok"},
        {"job": "c", "condition": "afterany"},
    ]


@pytest.mark.parametrize(
    ("read", "written"),
    [
        *((seconds, bad) for bad in ("", "soon", "1:2:3:4", "-5", "1-")),
        *((memory, bad) for bad in ("", "64P", "1.5G", "-1")),
        *((gres, bad) for bad in ("gpu:H100:many", "gpu:a:1:2", "gpu:A:1,gpu:B:1")),
        *((gpus, bad) for bad in ("0", "H100:", "many")),
        *((count, bad) for bad in ("0", "-1", "two", "2-4")),
        *((dependencies, bad) for bad in ("afterok", "afterok:", "singleton", "after:a", "afterok:a?afterok:b", "")),
    ],
)
def test_what_is_not_written_so_is_refused(read: Callable[[str], object], written: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        read(written)
