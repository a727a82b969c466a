"""`quorate checkpoints`, as people and as programs read it."""

from __future__ import annotations

import json

import pytest

from reconciler.api.server import ApiServer
from reconciler.model.checkpoint_findings import MissingShard, WrongHash
from reconciler.model.checkpoint_record import CheckpointRecord
from solver.model.quantities import Memory
from tests.reconciler.api.conftest import NOW, Site
from tests.reconciler.cli.conftest import Now, Quorate, submitted


@pytest.fixture(autouse=True)
def four_checkpoints(site: Site, at_server: ApiServer, now: Now) -> None:
    llama = submitted(site, "llama")
    sizes = {100: 900, 200: 5_000, 300: 3 * 2**20, 400: 2**40 + 2**38}
    for step, size in sizes.items():
        made = CheckpointRecord(llama, 1, step, "default", f"s3://b/{step}", 8, Memory(size), "sha256:ab", NOW)
        site.store.checkpoints.record(site.epoch(), made)
        if step == 100:
            site.store.checkpoints.delete(site.epoch(), made.key)
        elif step == 200:
            site.store.checkpoints.judge(site.epoch(), made.key, ())
        elif step == 400:
            found = WrongHash("worker.3", "weights"), MissingShard("worker.4", "x")
            site.store.checkpoints.judge(site.epoch(), made.key, found)
    now.advance(90)


def test_the_table_shows_what_there_is_to_go_on_from(quorate: Quorate) -> None:
    lines = quorate("checkpoints", "llama").out.splitlines()
    assert [" ".join(line.split()) for line in lines[1:]] == [
        "400 1 8 1.2 TiB corrupt 1m30s shard weights of worker.3 has another SHA-256; shard x of worker.4 is missing",
        "300 1 8 3.0 MiB published 1m30s",
        "200 1 8 4.9 KiB verified 1m30s",
    ]
    everything = quorate("checkpoints", "llama", "--all").out.splitlines()
    assert " ".join(everything[-1].split()) == "100 1 8 900 B deleted 1m30s"


def test_programs_read_findings_as_data(quorate: Quorate) -> None:
    listed = json.loads(quorate("checkpoints", "llama", "-o", "json").out)["items"]
    assert [(each["step"], each.get("state", "published")) for each in listed] == [
        (400, "corrupt"),
        (300, "published"),
        (200, "verified"),
    ]
    assert listed[0]["findings"][1] == {"finding": "missing-shard", "task": "worker.4", "shard": "x"}


def test_a_job_that_has_saved_nothing_says_so(site: Site, quorate: Quorate) -> None:
    submitted(site, "small")
    assert quorate("checkpoints", "small").out == "no checkpoints\n"
    assert quorate("checkpoints", "smal").exit_code == 1
