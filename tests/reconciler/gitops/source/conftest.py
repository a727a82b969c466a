"""A policy repository for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reconciler.gitops.source.origin import QUEUE, Origin


@pytest.fixture
def origin(tmp_path: Path) -> Origin:
    made = Origin(tmp_path / "origin")
    made.commit({"policies/team.yaml": QUEUE % 1})
    return made
