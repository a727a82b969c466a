"""What every Driver does; see reconciler/node/nvml/driver.py. Nothing here changes a GPU, so real ones are asked too."""

from __future__ import annotations

import re
import time

import pytest

from reconciler.node.nvml.driver import Driver, GpuLostError, GpuUuid
from reconciler.node.nvml.inventory import read_inventory
from reconciler.node.nvml.profiles import vocabulary_of
from solver.model.mig import mig_model

UUID = re.compile(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def test_a_driver_has_a_version_and_names_its_gpus(any_driver: Driver) -> None:
    assert re.fullmatch(r"\d+\.\d+(\.\d+)?", any_driver.version())
    gpus = any_driver.gpus()
    assert gpus
    assert len(set(gpus)) == len(gpus)
    assert all(UUID.fullmatch(gpu) for gpu in gpus)
    assert any_driver.gpus() == gpus


def test_a_gpu_says_what_it_is(any_driver: Driver) -> None:
    for gpu in any_driver.gpus():
        card = any_driver.card(gpu)
        assert card.uuid == gpu
        assert card.product
        assert re.fullmatch(r"[0-9A-F]{8}:[0-9A-F]{2}:[0-9A-F]{2}\.[0-9A-F]", card.bus)
        assert card.memory > 2**30
        assert any_driver.memory_used(gpu) < card.memory


def test_a_gpu_says_how_it_is_or_that_it_cannot(any_driver: Driver) -> None:
    for gpu in any_driver.gpus():
        vitals = any_driver.vitals(gpu)
        assert vitals.temperature_c is None or 0 < vitals.temperature_c < 130
        assert vitals.uncorrectable_errors is None or vitals.uncorrectable_errors >= 0
        assert (vitals.remap_pending is None) == (vitals.remap_failed is None)
        assert list(vitals.throttle_reasons) == sorted(vitals.throttle_reasons)
        assert all(process.pid > 0 for process in any_driver.processes(gpu))
        assert any_driver.card(gpu).bus not in any_driver.wiring(gpu).peers


def test_the_profiles_of_a_known_model_are_those_of_the_table(any_driver: Driver) -> None:
    for gpu in any_driver.gpus():
        offers = any_driver.profiles(gpu)
        words = vocabulary_of(any_driver.card(gpu).product, offers)
        if not words.model:
            continue
        table = {profile.name: (profile.profile_id, profile.starts) for profile in mig_model(words.model).profiles}
        assert {name: (offer.id, offer.starts) for name, offer in words.offered.items()} == table


def test_a_gpu_without_mig_offers_nothing_and_one_with_it_says_its_mode(any_driver: Driver) -> None:
    for gpu in any_driver.gpus():
        mig = any_driver.mig(gpu)
        assert (mig is None) == (any_driver.profiles(gpu) == ())
        assert mig is None or mig.enabled or mig.instances == ()


def test_a_gpu_says_what_it_does_or_that_it_cannot(any_driver: Driver) -> None:
    for gpu in any_driver.gpus():
        mig = any_driver.mig(gpu)
        first = any_driver.usage(gpu)
        assert first is None or first.source == "utilisation"
        if mig is not None and mig.enabled:
            continue
        found = first
        for _ in range(1_000):
            found = found or any_driver.usage(gpu)
            time.sleep(0 if found else 0.005)
        assert found is not None
        percent = (found.active, found.occupancy, found.tensor, found.dram, found.memory)
        assert all(value is None or 0 <= value <= 100 for value in percent)
        assert found.active is not None
        assert found.memory is not None
        assert found.nvlink is None or (found.source == "gpm" and found.nvlink >= 0)


def test_an_unknown_gpu_is_a_lost_one(any_driver: Driver) -> None:
    with pytest.raises(GpuLostError, match="does not list it"):
        any_driver.card(GpuUuid("GPU-00000000-0000-0000-0000-000000000000"))


def test_everything_goes_into_the_inventory(any_driver: Driver) -> None:
    inventory = read_inventory(any_driver)
    assert tuple(gpu.uuid for gpu in inventory.gpus) == any_driver.gpus()
    assert inventory.failures == ()
    assert inventory.driver == any_driver.version()
