"""The page on what is said inside a cluster keeps up with the code: every reason of conditions, Events and queues."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from reconciler.kubernetes import status
from tests.house.tracked import ROOT

PAGE = (ROOT / "docs" / "kubernetes-status.md").read_text()
CODE = Path(status.__file__).parent
WORD = re.compile(r"[A-Z][a-z]+([A-Z][a-z]+)*")


def reasons() -> Iterator[str]:
    """Whatever is written as Kubernetes writes reasons."""
    for path in CODE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and WORD.fullmatch(node.value):
                yield node.value


NO_REASONS = {
    "Pod", "Node", "Queue", "Warning", "Normal", "True", "False", "None", "Binding", "Evict", "Promise", "Withdraw", "Reserve",
    "Unreserve", "Release", "Repartition", "Scheduling", "Inventory", "ConfigMap", "Workload", "JudgeHealth", "WatchNode",
}  # fmt: skip
"""Kinds, types and actions."""


def test_every_reason_is_on_the_page() -> None:
    found = set(reasons()) - NO_REASONS
    assert len(found) > 20
    assert sorted(reason for reason in found if f"`{reason}`" not in PAGE) == []
