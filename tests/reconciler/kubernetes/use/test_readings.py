"""What dcgm-exporter's figures mean: fields, labels, blanks, and what a minute of them adds up to."""

from __future__ import annotations

import pytest

from reconciler.kubernetes.use.readings import BoardReading, figures_of, from_matrix, from_text
from reconciler.model.gpu_use import UseFigures, UseSpread, record_of
from solver.model.quantities import Duration
from tests.reconciler.kubernetes.use.exporter import BLANK, N1, NOW, busy, line, reading, text

HALF_A_MINUTE = Duration(30_000)


def use(*readings: BoardReading, interval: Duration = HALF_A_MINUTE) -> UseFigures | None:
    return figures_of(readings, interval)


def test_an_answer_of_the_exporter_is_read_with_its_board_node_and_pod() -> None:
    found = list(from_text(text("n1", {0: ("train", busy(0.5)), 1: ("", busy(0.0))}), NOW))
    assert {(one.node, one.uuid, one.pod, one.at) for one in found} == {
        (N1, "GPU-n1-0", ("team", "train"), NOW),
        (N1, "GPU-n1-1", None, NOW),
    }
    assert "DCGM_FI_DEV_SM_CLOCK" not in {one.field for one in found}


@pytest.mark.parametrize(
    ("labels", "pod"),
    [
        ({"pod": "exporter", "namespace": "gpu", "exported_pod": "train", "exported_namespace": "team"}, "train"),
        ({"pod_name": "train", "pod_namespace": "team"}, "train"),
        ({"pod": "train"}, None),
    ],
)
def test_the_pod_is_that_which_has_the_board_and_not_the_exporter(labels: dict[str, str], pod: str | None) -> None:
    (one,) = from_text(line("DCGM_FI_DEV_GPU_UTIL", 5, 0, "n1", **labels), NOW)
    assert one.pod == (("team", pod) if pod else None)


def test_labels_of_other_versions_are_known() -> None:
    told = 'DCGM_FI_DEV_GPU_UTIL{uuid="GPU-1",hostname="n1",GPU_I_ID="3"} 5 1772366400000\n'
    assert list(from_text(told, NOW.after(9))) == [reading("DCGM_FI_DEV_GPU_UTIL", 5.0, divided=True)]


@pytest.mark.parametrize("value", [BLANK, 2.0**63, -1.0, float("nan"), float("inf"), 1.5])
def test_what_no_share_can_be_is_not_known_and_never_0(value: float) -> None:
    told = line("DCGM_FI_PROF_GR_ENGINE_ACTIVE", value, 0, "n1")
    assert list(from_text(told, NOW)) == []


@pytest.mark.parametrize("told", ["<html>", 'a{b="c', "DCGM_FI_DEV_GPU_UTIL{} x\n"])
def test_what_is_no_answer_of_an_exporter_is_an_error(told: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        list(from_text(told, NOW))


def test_without_the_activity_of_sms_that_of_the_engine_counts_and_is_called_so() -> None:
    engine, sm = reading("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 0.9), reading("DCGM_FI_PROF_SM_ACTIVE", 0.3)
    rates = reading("DCGM_FI_DEV_GPU_UTIL", 100.0)
    found = [use(*those) for those in ((rates,), (rates, engine), (rates, engine, sm))]
    assert [(each.source, each.active.mean) for each in found if each and each.active] == [
        ("utilisation", 100.0),
        ("dcgm-engine", 90.0),
        ("dcgm-sm", 30.0),
    ]
    assert use(reading("DCGM_FI_DEV_FB_USED", 5.0)) is None


def test_the_better_source_counts_where_a_minute_is_told_by_several() -> None:
    records = [record_of(UseFigures(source, 2)) for source in ("utilisation", "dcgm-engine", "dcgm-sm", "gpm")]
    assert records == sorted(records)


def test_values_that_are_repeated_are_counted_once_and_no_percentiles_are_made_of_them() -> None:
    scraped = [reading("DCGM_FI_PROF_SM_ACTIVE", 0.2 if at < 30 else 0.4, at) for at in range(0, 60, 5)]
    assert use(*scraped) == UseFigures("dcgm-sm", 2, active=UseSpread(30.0, 20.0))


def test_where_the_exporter_collects_often_enough_there_are_percentiles() -> None:
    scraped = [reading("DCGM_FI_PROF_SM_ACTIVE", at / 100, at) for at in range(0, 60, 5)]
    found = use(*scraped, interval=Duration(5_000))
    assert found is not None
    assert found.active == UseSpread(27.5, 0.0, 5.0, 50.0)
    assert found.covered == 12


def test_all_of_a_board_adds_up() -> None:
    figures = {
        "DCGM_FI_PROF_SM_ACTIVE": 0.5,
        "DCGM_FI_PROF_SM_OCCUPANCY": 0.25,
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.2,
        "DCGM_FI_PROF_DRAM_ACTIVE": 0.1,
        "DCGM_FI_PROF_NVLINK_RX_BYTES": 2.0**20,
        "DCGM_FI_PROF_NVLINK_TX_BYTES": 2.0**21,
        "DCGM_FI_DEV_FB_USED": 10.0,
        "DCGM_FI_DEV_FB_FREE": 25.0,
        "DCGM_FI_DEV_FB_RESERVED": 5.0,
    }
    one = [UseSpread(value, value) for value in (50.0, 25.0, 20.0, 10.0, 3.0, 25.0)]
    assert use(*(reading(field, value) for field, value in figures.items())) == UseFigures("dcgm-sm", 1, *one)
    assert use(*(reading(field, value) for field, value in figures.items() if "FREE" not in field)) == UseFigures(
        "dcgm-sm", 1, *one[:-1]
    )


def test_of_a_partitioned_board_nothing_is_known() -> None:
    whole = reading("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 0.5)
    assert use(whole, whole._replace(divided=True)) is None


def test_an_answer_of_prometheus_has_the_times_at_which_it_asked() -> None:
    metric = {"__name__": "DCGM_FI_DEV_GPU_UTIL", "UUID": "GPU-1", "Hostname": "n1"}
    values = [[1772366400.0, "4"], [1772366415.0, "5"], [1772366430.5, "7"]]
    found = list(from_matrix({"result": [{"metric": metric, "values": values}]}, HALF_A_MINUTE))
    assert found == [reading("DCGM_FI_DEV_GPU_UTIL", 5.0, 15), reading("DCGM_FI_DEV_GPU_UTIL", 7.0, 30.5)]
