"""What tests of agents begin with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.reconciler.backends.baremetal.trust import Trust, trust_in


@pytest.fixture
def trust(tmp_path: Path) -> Iterator[Trust]:
    with trust_in(tmp_path) as made:
        yield made
