"""Machines with made-up GPUs, asked through the real `pynvml`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pynvml
import pytest

import tests.reconciler.node.nvml.library_gpm
import tests.reconciler.node.nvml.library_mig  # noqa: F401  (its functions list themselves)
from reconciler.node.nvml.library.nvml import NvmlDriver, find_driver
from tests.reconciler.node.nvml.card import Card
from tests.reconciler.node.nvml.library import Library

Install = Callable[[Library], Library]


@contextmanager
def installed(library: Library) -> Iterator[Library]:
    """Let `pynvml` speak to a made-up library instead of libnvidia-ml.so."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pynvml, "nvmlLib", library)
        patch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
        yield library


@pytest.fixture
def install() -> Iterator[Install]:
    """As `installed`, until the end of the test or the next one."""
    with ExitStack() as until_the_end:
        yield lambda library: until_the_end.enter_context(installed(library))


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
