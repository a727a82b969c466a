"""Options and fixtures shared by all tests."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

# A slow machine is no failure: no test asserts seconds, hypothesis's own limit per example included.
settings.register_profile("quorate", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("quorate")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-scenarios", action="store_true", help="rewrite the `then` of every scenario file")


@pytest.fixture
def update_scenarios(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-scenarios"))
