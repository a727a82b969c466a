"""A release follows another on one PostgreSQL and goes again while jobs run: real processes, each with a schema of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from reconciler.store.schema import SCHEMA_VERSION
from solver.model.workload import JobName
from tests.e2e.control_plane import PATIENCE_S, ControlPlane, in_postgresql, processes_that_mention, sh, until
from tests.reconciler.gitops.source.origin import Origin

NEXT_RELEASE = (
    "-c",
    "from sqlalchemy import Column, Table, Text\n"
    "import reconciler.store.schema as schema\n"
    "schema.SCHEMA_VERSION += 1\n"
    "from reconciler.store.tables import kept\n"
    "new = schema.since(schema.SCHEMA_VERSION)\n"
    "kept.append_column(Column('later', Text, info=new))\n"
    "Table('later', schema.metadata, Column('what', Text, primary_key=True), info=new)\n"
    "from reconciler.cli.main import main\n"
    "main()\n",
)
"""This one, with a table and a column more. The release before this one knew no PostgreSQL."""


@dataclass
class Site:
    """`this` and `following` stand in for each other. `gates`: a named pipe for each job, which ends when somebody opens it."""

    this: ControlPlane
    following: ControlPlane
    store: list[str]
    engine: Engine
    gates: Path
    jobs: list[JobName] = field(default_factory=list)

    def start(self, plane: ControlPlane) -> None:
        plane.start(*self.store, "--tasks", str(self.this.folder.tasks))

    def hand_over(self, old: ControlPlane, new: ControlPlane) -> None:
        """As a rolling upgrade does: the new one starts beside the old one, which is then told to stop."""
        self.start(new)
        assert old.signal(signal.SIGTERM) == 0
        new.until_ready()

    def begin_job(self, plane: ControlPlane) -> None:
        """One more, that runs until the end."""
        name = JobName(f"job-{len(self.jobs)}")
        os.mkfifo(self.gates / name)
        with plane.client() as client:
            client.submit(name, sh(f"echo begun; read over < {self.gates / name}"))
            until("it runs", lambda: client.job(name).state == "running")
            until("it has begun", lambda: client.log(name) == b"begun\n")
        self.jobs.append(name)

    def tasks(self) -> list[int]:
        """The processes of all tasks and their supervisors."""
        return processes_that_mention(f"{self.this.folder.tasks}/")

    def schema_version(self) -> int:
        with self.engine.begin() as connection:
            return int(connection.execute(text("SELECT version FROM schema_version")).scalar_one())


@pytest.fixture
def site(origin: Origin, tmp_path: Path) -> Iterator[Site]:
    planes = (
        ControlPlane(origin.folder, tmp_path / "this"),
        ControlPlane(origin.folder, tmp_path / "next", NEXT_RELEASE),
    )
    (tmp_path / "gates").mkdir()
    with in_postgresql(tmp_path) as (store, engine):
        yield Site(*planes, store, engine, tmp_path / "gates")
        for plane in planes:
            plane.end()


@pytest.mark.postgresql
def test_jobs_live_through_an_upgrade_and_both_ways_back(site: Site) -> None:
    this, following = site.this, site.following
    site.start(this)
    this.until_ready()
    site.begin_job(this)
    site.start(following)
    assert site.schema_version() == SCHEMA_VERSION + 1
    site.begin_job(this)  # the release before goes on working on the new schema

    running = site.tasks()
    assert this.signal(signal.SIGTERM) == 0
    following.until_ready()
    assert site.tasks() == running
    site.begin_job(following)

    running = site.tasks()
    site.hand_over(following, this)  # back, by starting it
    assert site.schema_version() == SCHEMA_VERSION + 1
    assert site.tasks() == running
    site.begin_job(this)

    running = site.tasks()
    assert this.signal(signal.SIGTERM) == 0
    taken_back = [sys.executable, *NEXT_RELEASE, "store", "downgrade", *site.store]
    subprocess.run(taken_back, check=True)
    assert site.schema_version() == SCHEMA_VERSION
    site.start(this)
    this.until_ready()
    assert site.tasks() == running
    site.begin_job(this)
    all_end_well(site)


def all_end_well(site: Site) -> None:
    """Each in its first attempt."""
    with site.this.client() as client:
        for name in site.jobs:
            (site.gates / name).write_text("go\n")
            assert client.wait(name, PATIENCE_S).state == "succeeded"
            assert client.job(name).attempt == 1
