"""The fixture that the tests of the loop share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.reconciler.control.plane import Site, site_at


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A control plane with its store and a kind simulated backend."""
    with site_at(tmp_path / "quorate.db") as made:
        yield made
