"""What is said of the folders that a server keeps things in."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.server import disk
from reconciler.server.disk import StateDisks


def test_a_folder_with_room_is_not_told_and_has_its_figures(tmp_path: Path) -> None:
    disks = StateDisks({"state": tmp_path})
    assert list(disks.conditions()) == []
    free, pressure = disks.collect()
    assert [(sample.labels, sample.value > 0) for sample in free.samples] == [({"folder": "state"}, True)]
    assert [sample.value for sample in pressure.samples] == [0]


def test_a_missing_folder_is_a_condition_and_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "is_nearly_full", lambda path: bool(Path(path).stat()))
    disks = StateDisks({"tasks": tmp_path / "gone", "state": tmp_path})
    pressure, missing = disks.conditions()
    assert (pressure.type, missing.type) == ("DiskPressure", "StateFolderMissing")
    assert f"{tmp_path} (state)" in pressure.message
    assert missing.message.startswith(f"{tmp_path / 'gone'} (tasks): No such file or directory. ")
    assert [[sample.labels["folder"] for sample in family.samples] for family in disks.collect()] == [["state"]] * 2
