"""The page on devices names every reason why a claim is refused."""

from __future__ import annotations

import ast
from pathlib import Path

from reconciler.kubernetes.dra import claim_demand
from tests.house.tracked import ROOT

PAGE = (ROOT / "docs" / "kubernetes-dra.md").read_text()


def test_every_reason_is_on_the_page() -> None:
    codes = {
        str(call.args[0].value)
        for path in Path(claim_demand.__file__).parent.glob("*.py")
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "Refusal"
        if call.args and isinstance(call.args[0], ast.Constant)
    }
    assert len(codes) >= 10
    assert sorted(code for code in codes if f"`{code}`" not in PAGE) == []
