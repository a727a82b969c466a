"""Each error of NVML is sorted: what a GPU has not, that it is lost, that it is busy, or that a person must act."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

import pynvml
import pytest

from reconciler.node.local.gpus import DeclaredGpus
from reconciler.node.local_driver import driver_for, driver_here, gpus_of
from reconciler.node.nvml.driver import DriverError, DriverUnusableError, GpuLostError, InUseError, ResetNeededError
from reconciler.node.nvml.gpus import NvmlGpus
from reconciler.node.nvml.library.calls import as_ours
from reconciler.node.nvml.library.nvml import NvmlDriver
from tests.reconciler.node.nvml.card import Card
from tests.reconciler.node.nvml.conftest import Install
from tests.reconciler.node.nvml.library import Library
from tests.reconciler.node.nvml.made import workstation
from tests.unimported import unimport


def test_pynvml_comes_from_nvidia_ml_py_and_not_from_the_package_of_its_name() -> None:
    assert importlib.metadata.version("nvidia-ml-py")
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("pynvml")


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED])
def test_a_machine_without_a_driver_has_no_gpus(install: Install, code: int) -> None:
    install(Library(failing=code))
    assert isinstance(driver_here(), str)


def test_a_library_of_another_version_than_the_kernel_module_is_for_a_person_to_repair(install: Install) -> None:
    install(Library(failing=pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH))
    with pytest.raises(DriverUnusableError, match=r"two versions.*Restart the node"):
        driver_here()


def test_without_the_package_it_is_said_which_extra_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    unimport(monkeypatch, "reconciler.node.nvml.library.")
    said = driver_here()
    assert isinstance(said, str)
    assert "quorate[agent]" in said


def test_who_asks_for_real_gpus_where_there_are_none_is_refused(install: Install, tmp_path: Path) -> None:
    install(Library(failing=pynvml.NVML_ERROR_DRIVER_NOT_LOADED))
    with pytest.raises(DriverUnusableError, match="Declared GPUs can be simulated"):
        gpus_of(driver_for("nvml", tmp_path), tmp_path)


@pytest.mark.parametrize(
    ("code", "kind", "says"),
    [
        (pynvml.NVML_ERROR_GPU_IS_LOST, GpuLostError, "Restart the node"),
        (pynvml.NVML_ERROR_IN_USE, InUseError, "End what does"),
        (pynvml.NVML_ERROR_RESET_REQUIRED, ResetNeededError, "nvidia-smi --gpu-reset"),
        (pynvml.NVML_ERROR_NO_PERMISSION, DriverError, "as root"),
        (pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES, DriverError, "no room"),
        (pynvml.NVML_ERROR_UNKNOWN, DriverError, "kernel's log"),
    ],
)
def test_an_error_has_place_problem_and_fix(install: Install, code: int, kind: type[DriverError], says: str) -> None:
    install(Library())
    ours = as_ours("GPU-1", pynvml.NVMLError(code))
    assert type(ours) is kind
    assert str(ours).startswith("GPU-1: ")
    assert says in str(ours)


def test_what_a_card_has_not_is_a_fact(install: Install) -> None:
    install(Library([workstation()]))
    driver = NvmlDriver()
    (gpu,) = driver.gpus()
    vitals = driver.vitals(gpu)
    assert (vitals.temperature_c, vitals.uncorrectable_errors, vitals.remap_failed) == (None, None, None)
    assert driver.mig(gpu) is None
    assert driver.wiring(gpu).peers == frozenset()


def test_what_an_older_driver_has_not_is_a_fact_too(install: Install) -> None:
    absent = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetRemappedRows")
    install(Library([Card(0, reasons=pynvml.nvmlClocksEventReasonHwThermalSlowdown)], missing=absent))
    driver = NvmlDriver()
    (gpu,) = driver.gpus()
    assert driver.vitals(gpu).throttle_reasons == ("hardware-thermal",), "it has the older function for that"
    assert driver.vitals(gpu).remap_failed is None
    assert driver.wiring(gpu).clique == ""


def test_one_lost_gpu_does_not_hide_the_others(driver: NvmlDriver, library: Library) -> None:
    lost, well = driver.gpus()
    library.cards[0].lost = True
    with pytest.raises(GpuLostError):
        driver.vitals(lost)
    assert driver.vitals(well).temperature_c == 41
    assert driver.gpus() == (well,)
    with pytest.raises(GpuLostError):
        driver.card(lost)


def test_idleness_and_chosen_clocks_hold_nothing_down(install: Install) -> None:
    bits = pynvml.nvmlClocksEventReasonGpuIdle | pynvml.nvmlClocksEventReasonApplicationsClocksSetting
    install(Library([Card(0, reasons=bits | pynvml.nvmlClocksEventReasonSwPowerCap)]))
    driver = NvmlDriver()
    assert driver.vitals(driver.gpus()[0]).throttle_reasons == ("power-cap",)


def test_real_gpus_are_used_where_there_are_any_and_simulated_where_there_never_were(
    install: Install, tmp_path: Path
) -> None:
    install(Library(failing=pynvml.NVML_ERROR_DRIVER_NOT_LOADED))
    assert isinstance(gpus_of(driver_for("auto", tmp_path), tmp_path), DeclaredGpus)
    install(Library())
    assert isinstance(gpus_of(driver_for("auto", tmp_path), tmp_path), DeclaredGpus)
    library = install(Library([Card(0)]))
    real = gpus_of(driver_for("auto", tmp_path), tmp_path)
    assert isinstance(real, NvmlGpus)
    real.seats()
    library.cards.clear()
    assert isinstance(gpus_of(driver_for("auto", tmp_path), tmp_path), NvmlGpus), (
        "it had one: its number is kept, and it counts as lost"
    )


def test_nothing_is_simulated_where_a_driver_no_longer_shows_the_gpus_that_were_there(
    install: Install, tmp_path: Path
) -> None:
    install(Library([Card(0)]))
    NvmlGpus(tmp_path, NvmlDriver()).seats()
    install(Library(failing=pynvml.NVML_ERROR_DRIVER_NOT_LOADED))
    with pytest.raises(DriverUnusableError, match="Repair its driver"):
        gpus_of(driver_for("auto", tmp_path), tmp_path)
