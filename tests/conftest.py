"""Options and fixtures shared by all tests."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

# A slow machine is no failure: no test asserts seconds, hypothesis's own limit per example included. The same commit always draws
# the same examples, so that whoever broke something sees it; `--explore` draws others each time, to look for more.
settings.register_profile("same", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--explore", action="store_true", help="let hypothesis draw other examples each time")
    parser.addoption("--update-scenarios", action="store_true", help="rewrite the `then` of every scenario file")


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("explore" if config.getoption("--explore") else "same")


@pytest.fixture
def update_scenarios(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-scenarios"))
