"""The table of metrics has those that the program has, and no other; dashboards and rules name none else."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from tests.house.tracked import ROOT, tracked

ROW: Final = re.compile(r"^\| `(quorate_\w+)` \| (\w+) \|(.*?)\| (.+?) \| (.+?) \| (.+?) \|$", re.MULTILINE)
NAME: Final = re.compile(r'"(quorate_[a-z_]+)"')
NO_METRICS: Final = {"quorate_begin"}
"""Names of other things."""


class Row(NamedTuple):
    type: str
    labels: frozenset[str]


def table() -> dict[str, Row]:
    """What docs/metrics.md says, by name."""
    rows = ROW.findall((ROOT / "docs/metrics.md").read_text())
    return {name: Row(kind, frozenset(re.findall(r"`(\w+)`", labels))) for name, kind, labels, *_ in rows}


def test_each_metric_of_the_program_has_its_row_and_each_row_a_metric() -> None:
    code = "\n".join(path.read_text() for path in tracked("*.py") if path.is_relative_to(ROOT / "reconciler"))
    said = {name.removesuffix("_total") for name in table()}
    assert said == set(NAME.findall(code)) - NO_METRICS


def test_rows_keep_the_conventions_of_names() -> None:
    for name, (kind, labels) in table().items():
        assert kind in ("counter", "gauge", "histogram"), name
        assert name.endswith("_total") == (kind == "counter"), name
        assert labels.isdisjoint({"job", "user", "node", "gpu"}), name
