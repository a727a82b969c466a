"""What the tests cost: CPU seconds and waiting of each test, fixture and module, whatever else the machine does meanwhile.

    QUORATE_SUITE_COST=build/cost python -m pytest -p hack.suite_cost -n 3 tests/solver
    python -m hack.suite_cost build/cost

Wall times say little on a machine that others use too. CPU seconds say more: those of the test's process, and of the processes
that it started and waited for. A test that runs until a solver's clock costs most where the machine is idle.
"""

from __future__ import annotations

import os
import resource
import time
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

FOLDER = "QUORATE_SUITE_COST"


class Cost(msgspec.Struct, frozen=True):
    """Seconds that something took. `own`: CPU of its process; `children`: CPU of ended ones; `wall`: by the clock.

    `within`: of the CPU, what belongs to other things that were measured meanwhile.
    """

    kind: str
    name: str
    own: float
    children: float
    wall: float
    within: float

    @property
    def cpu(self) -> float:
        """Of it alone."""
        return self.own + self.children - self.within


class Book:
    """A file with a line for all that was measured in this process."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{os.environ.get('PYTEST_XDIST_WORKER', 'main')}-{os.getpid()}.jsonl"
        self._file = (folder / name).open("wb", buffering=0)
        self._within = [0.0]

    def close(self) -> None:
        """Write no more."""
        self._file.close()

    @contextmanager
    def measured(self, kind: str, name: str) -> Iterator[None]:
        """Write down what is done meanwhile."""
        self._within.append(0.0)
        began = _now()
        try:
            yield
        finally:
            own, children, wall = (after - before for after, before in zip(_now(), began, strict=True))
            found = Cost(kind, name, own, children, wall, self._within.pop())
            self._within[-1] += own + children
            self._file.write(msgspec.json.encode(found) + b"\n")


def _now() -> tuple[float, float, float]:
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time(), ended.ru_utime + ended.ru_stime, time.monotonic()


class CostPlugin:
    """The hooks of pytest that measure."""

    def __init__(self, book: Book) -> None:
        self._book = book

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Generator[None, Any, Any]:
        """A module is imported, and its tests are found."""
        with self._book.measured("module", collector.nodeid or "."):
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
        """A fixture begins."""
        with self._book.measured("fixture", f"{fixturedef.baseid}::{fixturedef.argname}"):
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """A test, with its fixtures."""
        with self._book.measured("test", item.nodeid):
            return (yield)

    def pytest_unconfigure(self) -> None:
        """All tests have ended."""
        self._book.close()


def pytest_configure(config: pytest.Config) -> None:
    """Measure, where a folder is named."""
    if folder := os.environ.get(FOLDER):
        config.pluginmanager.register(CostPlugin(Book(Path(folder))))


def read(folder: Path) -> Iterator[Cost]:
    """All that was written there; a line that is being written is not read."""
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n"):
                yield msgspec.json.decode(line, type=Cost)


def table(costs: Iterable[Cost], shown: int) -> list[str]:
    """The most costly of each kind, of each file of tests, and the sums."""
    rows = defaultdict[tuple[str, str], list[float]](lambda: [0.0, 0.0, 0.0, 0])
    for cost in costs:
        names = [(cost.kind, cost.name), (f"all: {cost.kind}", "")]
        if cost.kind == "test":
            names.append(("file", cost.name.partition("::")[0]))
        # A test is shown with its fixtures: some of them are there for it alone.
        cpu = cost.own + cost.children if cost.kind == "test" else cost.cpu
        for name in names:
            rows[name] = [x + y for x, y in zip(rows[name], (cpu, cost.children, cost.wall, 1), strict=True)]
    lines = ["    CPU s  of it children    wall s  times"]
    for kind in dict.fromkeys(kind for kind, _ in rows):
        lines.append(kind)
        most = sorted(((row, name) for (of, name), row in rows.items() if of == kind), reverse=True)[:shown]
        lines += [
            f"{cpu:9.2f} {children:15.2f} {wall:9.2f} {int(times):6} {name}".rstrip()
            for (cpu, children, wall, times), name in most
        ]
    return lines


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--shown", type=click.IntRange(min=1), default=30, show_default=True, help="Of each kind.")
def main(folder: Path, shown: int) -> None:
    """Say what was written to FOLDER by runs of pytest."""
    click.echo("\n".join(table(read(folder), shown)))


if __name__ == "__main__":
    main()
