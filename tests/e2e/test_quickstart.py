"""docs/quickstart.md, line for line, as somebody follows it: what it says is what comes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.control_plane import until
from tests.e2e.first_steps import ROOT, console_blocks, terminals

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(not (ROOT / ".venv/.installed").exists(), reason="`make install` was not run here"),
]
ADA = {
    f"GIT_{role}_{what}": name
    for role in ("AUTHOR", "COMMITTER")
    for what, name in (("NAME", "Ada"), ("EMAIL", "ada@example.com"))
}


def test_the_quickstart_is_as_it_stands(tmp_path: Path) -> None:
    install, init, serve, first, large, change, back, queue, clean = console_blocks(
        (ROOT / "docs/quickstart.md").read_text()
    )
    with terminals(tmp_path, **ADA) as shells:
        shells.run(f"{install}\n{init}")
        shells.begin(serve.strip())
        assert "my GPUs: h100-1/0,h100-1/1" in shells.run(first)
        assert "submitted large to team-a: 2 tasks, 16 GPUs" in shells.run(large)
        waits = "queue team-a holds 2 of max 16 H100-SXM5-80GB (policies/queues/team-a.yaml:10); this job needs 16"
        until("it is said why it waits", lambda: waits in shells.run("quorate why large"))
        assert "main → less-for-a: 1 job becomes inadmissible" in shells.run(change)
        merge, revert = back.split("quorate why large\n")[:2]
        shells.run(f"cd my-cluster\n{merge}")
        until("it can't run any more", lambda: "may never hold more than 8" in shells.run("quorate why large"))
        shells.run(f"cd my-cluster\n{revert}")
        until("it waits as before", lambda: waits in shells.run("quorate why large"))
        assert "first  " in shells.run("quorate get --state running")
        assert "third: running" in shells.run(f"cd my-cluster\n{queue}")
        assert sorted(shells.run(clean).splitlines()) == [f"{job}: asked to end" for job in ("first", "large", "third")]
