"""A repository with a tiny policy, and a control plane on it that is not running yet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.control_plane import POLICY, ControlPlane
from tests.reconciler.gitops.source.origin import Origin


@pytest.fixture
def origin(tmp_path: Path) -> Origin:
    made = Origin(tmp_path / "policy")
    made.commit(POLICY)
    return made


@pytest.fixture
def plane(origin: Origin, tmp_path: Path) -> Iterator[ControlPlane]:
    made = ControlPlane(origin.folder, tmp_path / "state")
    yield made
    made.end()
