"""Databases as earlier releases had them: the tables they made, and today's taken back to them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from sqlalchemy import Connection

from reconciler.store import migrations
from reconciler.store.migrations import BASELINE, downgrade
from reconciler.store.schema import SCHEMA_VERSION

EARLIER: Final = tuple(range(BASELINE, SCHEMA_VERSION))
"""The versions from which a database is brought up to date."""

MADE: Final = {version: (Path(__file__).parent / f"schema_{version}.sql").read_text() for version in EARLIER}
"""What the programs of each version gave to a new SQLite database."""


def take_back(connection: Connection, version: int) -> None:
    """By one version after the other, each with the `downgrade` of its release, which goes by the same marks."""
    for newer in range(SCHEMA_VERSION, version, -1):
        with pytest.MonkeyPatch.context() as released:
            released.setattr(migrations, "SCHEMA_VERSION", newer)
            assert downgrade(connection) == newer - 1
