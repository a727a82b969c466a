"""The page on Kubernetes objects keeps up with the code: every reason, label and GPU type that it knows."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from reconciler.kubernetes.binder import intents, reservation_store
from reconciler.kubernetes.objects import domains, names
from reconciler.model import gpu_products
from tests.house.tracked import ROOT

PAGE = (ROOT / "docs" / "kubernetes-objects.md").read_text()
CODE = Path(names.__file__).parent


def said_codes() -> Iterator[str]:
    for path in CODE.glob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            if not isinstance(call, ast.Call) or not call.args:
                continue
            called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            first = call.args[0]
            if called in ("Refusal", "Remark", "refuse") and isinstance(first, ast.Constant):
                yield str(first.value)


def test_every_reason_is_on_the_page() -> None:
    codes = set(said_codes())
    assert len(codes) > 30
    # What can't be a quantity can't be in an object that the API server accepted.
    assert sorted(code for code in codes - {"unreadable-quantity"} if f"`{code}`" not in PAGE) == []


def test_what_is_written_of_evictions_and_promises_is_on_their_page() -> None:
    page = "".join((ROOT / "docs" / f"kubernetes-{name}.md").read_text() for name in ("eviction", "disruption"))
    written = (names.CHECKPOINT_INTERVAL, names.CHECKPOINT_GRACE, names.CHECKPOINT_HOOK, names.CHECKPOINTED)
    said = (*written, names.CHECKPOINT_BY, names.EVICT, names.PROMISE, reservation_store.NAME, names.DEFAULT_CONTAINER)
    source = Path(intents.__file__).read_text()
    codes = [code for code in ("record-not-believed", "promised-twice") if f'Remark("{code}"' in source]
    assert len(codes) == 2
    assert [word for word in (*said, *codes) if f"`{word}" not in page] == []


def test_every_label_of_a_level_is_on_the_page() -> None:
    assert [
        key for level, keys in domains.KEYS.items() for key in keys if level != "node" and f"`{key}`" not in PAGE
    ] == []


def test_every_gpu_type_is_on_the_page() -> None:
    table = gpu_products.TYPE_OF_PRODUCT
    assert [word for word in (*table, *table.values()) if f"`{word}`" not in PAGE] == []


def shown_by(page: str, heading: str) -> list[list[str]]:
    """The tests that each row of the first table below a heading names."""
    table = page.split(heading)[1].split("\n#", maxsplit=1)[0]
    rows = [line.rstrip("| ").rpartition("| ")[2] for line in table.splitlines() if line.startswith("| ")][1:]
    return [re.findall(r"`(test_\w+)`", row) for row in rows]


def test_each_scheduling_feature_and_controller_is_shown_by_tests_that_there_are() -> None:
    features = shown_by((ROOT / "docs" / "kubernetes.md").read_text(), "## Scheduling features")
    controllers = shown_by(PAGE, "### Workload kinds")
    assert len(features) > 10
    assert len(controllers) > 20
    assert all(features + controllers)
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("kubernetes/**/test_*.py"))
    assert [name for row in features + controllers for name in row if f"def {name}(" not in tests] == []
