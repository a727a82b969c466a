"""Options and fixtures shared by all tests."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-scenarios", action="store_true", help="rewrite the `then` of every scenario file")


@pytest.fixture
def update_scenarios(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-scenarios"))
