"""Machines with made-up GPUs, asked through the real `pynvml`."""

from __future__ import annotations

from collections.abc import Callable

import pynvml
import pytest

import tests.nvml.library_mig  # noqa: F401  (its functions list themselves)
from reconciler.agent.nvml.library.nvml import NvmlDriver, find_driver
from tests.nvml.card import Card
from tests.nvml.library import Library

Install = Callable[[Library], Library]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Let `pynvml` speak to a made-up library instead of libnvidia-ml.so."""

    def install(library: Library) -> Library:
        monkeypatch.setattr(pynvml, "nvmlLib", library)
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
        return library

    return install


@pytest.fixture
def library(install: Install) -> Library:
    """Of a machine with two GPUs."""
    return install(Library([Card(0), Card(1)]))


@pytest.fixture
def driver(library: Library) -> NvmlDriver:
    """That library, opened."""
    driver = find_driver()
    assert isinstance(driver, NvmlDriver)
    return driver
