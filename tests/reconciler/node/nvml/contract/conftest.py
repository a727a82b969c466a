"""The drivers that have to agree: made-up machines, and this one if it has a GPU."""

from __future__ import annotations

import pytest

from reconciler.node.local_driver import driver_here
from reconciler.node.nvml.driver import Driver
from tests.reconciler.node.nvml.conftest import Install
from tests.reconciler.node.nvml.library import Library
from tests.reconciler.node.nvml.made import PRODUCTS, card_of, workstation

THIS_MACHINE = "this machine"


@pytest.fixture(params=[*PRODUCTS, "no MIG", pytest.param(THIS_MACHINE, marks=pytest.mark.gpu)])
def any_driver(request: pytest.FixtureRequest, install: Install) -> Driver:
    """One after the other."""
    if request.param != THIS_MACHINE:
        kind = request.param
        install(Library(workstation(n) if kind == "no MIG" else card_of(kind, n) for n in range(2)))
    driver = driver_here()
    if isinstance(driver, str):
        assert request.param == THIS_MACHINE, driver
        pytest.skip(f"this machine has no GPU of NVIDIA: {driver}")
    return driver
