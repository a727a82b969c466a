"""What docs/client.md shows works as it stands there."""

from __future__ import annotations

import re

import pytest

from reconciler.api.server import ApiServer
from reconciler.protocols.history import Event
from tests.house.tracked import ROOT
from tests.reconciler.api.conftest import NOW, TOKEN, Site

PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_the_examples_run(
    site: Site, server: ApiServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("QUORATE_SERVER", server.url)
    monkeypatch.setenv("QUORATE_TOKEN", TOKEN)
    site.record_round()
    site.store.history.record_event(Event(NOW, "applied", "abc123", "a commit", "policy"))
    names: dict[str, object] = {}
    for example in PYTHON.findall((ROOT / "docs" / "client.md").read_text()):
        exec(example, names)
    printed = capsys.readouterr().out
    assert "alice ('org', 'other', 'team')\n" in printed
    assert "sweep-1 queued\n" in printed
    assert "1 abc123 applied\n" in printed
    assert "sweep-1 has not ended within 0.1 seconds\n" in printed
    assert "404 unknown-job Did you mean sweep-1?\n" in printed
    assert names["waiting"] == ["sweep-1"]
