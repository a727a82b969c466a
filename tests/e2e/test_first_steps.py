"""The first five lines of the README lead from nothing to an own running job."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.control_plane import until
from tests.e2e.first_steps import ROOT, console_blocks, terminals

pytestmark = pytest.mark.skipif(not (ROOT / ".venv/.installed").exists(), reason="`make install` was not run here")


def test_the_first_lines_of_the_readme_lead_to_a_running_job(tmp_path: Path) -> None:
    first, *_ = console_blocks((ROOT / "README.md").read_text())
    install, init, serve, submit, why = first.splitlines()
    assert serve.startswith("quorate run ")
    with terminals(tmp_path) as shells:
        printed = shells.run(f"{install}\n{init}")
        assert [line.split("quorate ")[1] for line in printed.splitlines() if line.startswith("  ")] == [
            line.split("#")[0].split("quorate ")[1].strip() for line in (serve, submit, why)
        ]
        shells.begin(serve)
        assert "submitted hello to team-a: 2 tasks, 8 GPUs" in shells.run(submit)
        until("it runs", lambda: "hello: running" in shells.run(why))
        until("it says so itself", lambda: "of hello has GPUs h100-" in shells.run("quorate logs hello"))
        shells.run("quorate cancel hello")
