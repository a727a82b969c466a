"""Anchors of the audit chain, noted while a control plane runs and when it stops."""

from __future__ import annotations

from pathlib import Path

import structlog
from structlog.testing import capture_logs

from reconciler.access.audit_keys import AuditKeyFile
from reconciler.analysis.audit.files import read_anchors
from reconciler.model.clock import VirtualClock
from reconciler.protocols.history import Event
from reconciler.server.audit_anchors import AuditAnchors
from reconciler.store.store import open_store
from tests.contracts.stores import NOW
from tests.fresh_store import fresh_store


def test_what_is_new_is_noted_and_a_file_that_fails_ends_nothing(tmp_path: Path) -> None:
    fresh_store(tmp_path / "quorate.db").close()
    keys = AuditKeyFile(tmp_path / "keys")
    keys.begin()
    store = open_store(tmp_path / "quorate.db", audit_keys=keys)
    path = tmp_path / "anchors"
    anchors = AuditAnchors(store.audit, path, VirtualClock(), structlog.get_logger())
    anchors.note()
    assert not path.exists(), "the chain has not begun"
    for number in (1, 1, 2):
        if number == 2 or not path.exists():
            store.history.record_event(Event(NOW, "submitted", f"job-{number}", "", "ada"))
        anchors.note()
    with path.open("ab") as file:
        file.write(b'{"at": "20')  # what a crash leaves
    assert [each.events and each.events.number for each in read_anchors(path)] == [2, 3]
    anchors.stop()
    with capture_logs() as logs:
        AuditAnchors(store.audit, tmp_path / "none" / "anchors", VirtualClock(), structlog.get_logger()).note()
    assert [line["event"] for line in logs] == ["audit-anchor-failed"]
    store.close()
