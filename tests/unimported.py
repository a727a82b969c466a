"""Modules that are to be imported anew within a test, and what that would otherwise leave behind."""

from __future__ import annotations

import sys

import pytest


def unimport(monkeypatch: pytest.MonkeyPatch, *beginnings: str) -> None:
    """Forget the modules whose names begin so, until the test is over.

    Who is imported also becomes an attribute of its package. Unless that is put back with the modules, tests that name a place by
    its path (`monkeypatch.setattr("a.b.c", ...)`) come to another module later than the code does.
    """
    known = [name for name in sys.modules if name.startswith(beginnings)]
    for name in known:
        package, _, own = name.rpartition(".")
        if hasattr(sys.modules[package], own):
            monkeypatch.setattr(sys.modules[package], own, getattr(sys.modules[package], own))
    for name in known:
        monkeypatch.delitem(sys.modules, name)
