"""What docs/importing.md shows of each system is what an import makes of it."""

from __future__ import annotations

import re

import pytest

from reconciler.importers.conversion import SYSTEMS
from tests.house.tracked import ROOT
from tests.reconciler.importers.imports import imported

PAGE = (ROOT / "docs" / "importing.md").read_text()
SHOWN = re.compile(r"^`([^`]+)`:\n\n```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL)
TITLES = {"kueue": "Kueue", "slurm": "Slurm", "kai": "KAI", "volcano": "Volcano", "yunikorn": "YuniKorn"}


@pytest.mark.parametrize("system", SYSTEMS)
def test_each_system_is_shown_with_what_becomes_of_it(system: str) -> None:
    _, _, rest = PAGE.partition(f"\n## {TITLES[system]}\n")
    shown = dict(SHOWN.findall(rest.partition("\n## ")[0]))
    ours = {path: text for path, text in shown.items() if path.startswith("policies/")}
    theirs = {path: text for path, text in shown.items() if path not in ours}
    types = {} if system == "slurm" else {"only": "H100-SXM5-80GB"}
    found = imported(system, theirs, **types)
    assert {path: found.files[path] for path in ours} == ours
    assert theirs
    assert ours
