"""Options and fixtures shared by all tests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from reconciler.control.garbage_collection import filling, seldom
from tests.drawn import DRAWING, worlds

POSTGRESQL_URL = "QUORATE_TEST_POSTGRESQL"

IN_MEMORY = Path("/dev/shm")
ROOM_BYTES = 4_000_000_000
TEMPORARY = "PYTEST_DEBUG_TEMPROOT"
"""By which pytest is told where folders of tests shall lie."""

# A slow machine is no failure: no test asserts seconds, hypothesis's own limit per example included. The same commit always draws
# the same examples, so that whoever broke something sees it; `--explore` draws others each time, to look for more.


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--explore", action="store_true", help="let hypothesis draw other examples each time")
    parser.addoption("--all-worlds", action="store_true", help="draw as many examples as each property asks for")
    parser.addoption(
        "--late", metavar="SEED", help="of tests of Kubernetes: what the API server says comes late at random"
    )
    parser.addoption("--update-scenarios", action="store_true", help="rewrite the `then` of every scenario file")


def pytest_configure(config: pytest.Config) -> None:
    # What is printed is compared, and is as wide and as coloured as the terminal that somebody runs tests at.
    os.environ["COLUMNS"] = "80"
    for name in ("LINES", "NO_COLOR", "FORCE_COLOR"):
        os.environ.pop(name, None)
    if IN_MEMORY.is_mount() and shutil.disk_usage(IN_MEMORY).free >= ROOM_BYTES:
        # A commit to SQLite takes 0.2 ms there, and waits 5 ms for a busy disk: tests make many thousands.
        os.environ.setdefault(TEMPORARY, str(IN_MEMORY))
    if config.getoption("--all-worlds"):
        DRAWING.everything = True
    explored = bool(config.getoption("--explore"))
    settings.register_profile(
        "chosen", worlds(100), derandomize=not explored, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("chosen")
    seldom()  # as `quorate run` does


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Modules and tests stay until the end: no search for garbage looks at them, which takes longer than most tests do."""
    with filling():
        return (yield)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("postgresql") and POSTGRESQL_URL not in os.environ:
        pytest.skip(
            f"no PostgreSQL: {POSTGRESQL_URL} names none; `make test-postgresql` and `make test-postgresql-long` start one"
        )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What tests have measured: each says so by `record_property("figure", ...)`, and none is judged by it."""
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == "figure":
                terminalreporter.write_line(str(value))


@pytest.fixture
def update_scenarios(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-scenarios"))
