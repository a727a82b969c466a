"""`quorate cordon`, `uncordon`, `hold` and `boost`, and where what they do is shown."""

from __future__ import annotations

import json

import msgspec
import pytest

from reconciler.api.server import ApiServer
from reconciler.client import Client
from reconciler.model.job_record import JobOutcome
from solver.model.document import encode
from solver.model.workload import JobArray, JobName
from tests.contracts.simulated_worlds import NODES
from tests.reconciler.api.conftest import NOW, TOKEN, Site, spec
from tests.reconciler.cli.conftest import Now, Quorate, on, submitted

WHY = "--reason=ticket 4711"
STATUS = """\
Server           {url}
Leader           test, epoch 1
Policy in force  abc123
Jobs             1 queued, 1 starting

CONDITION  STATUS  REASON  MESSAGE
Ready      True

By hand, beside what Git says:
WHAT    OF          BY     UNTIL                       REASON
cordon  node n1     alice  2023-11-15 04:13:20 +02:00  ticket 4711
hold    queue team  alice  2023-11-15 01:13:20 +02:00  ticket 4711
boost   job big     alice  2023-11-16 00:13:20 +02:00  ticket 4711
"""
NODES_SHOWN = """\
NODE  POOL  GPU TYPE  GPUS   CPU   MEMORY  STATE                                                             JOBS
n1    pool  H100       4/4  0/64  0/256Gi  cordoned, by alice until 2023-11-15 04:13:20 +02:00: ticket 4711  llama
n2    pool  H100       0/4  0/64  0/256Gi  ready
"""
QUEUES_END = "queue team: hold by alice until 2023-11-15 01:13:20 +02:00: ticket 4711\n"


@pytest.fixture(autouse=True)
def two_jobs(site: Site, at_server: ApiServer, now: Now) -> None:
    """One that runs, one that waits."""
    submitted(site, "llama", gpus=4)
    submitted(site, "big", gpus=4)
    site.bind("llama", on(NODES[0], 0, 1, 2, 3))


def test_what_is_in_force_is_shown_with_who_why_and_until(quorate: Quorate, at_server: ApiServer) -> None:
    cordoned = "n1: cordon until 2023-11-15 04:13:20 +02:00: ticket 4711\n"
    assert quorate("cordon", "n1", WHY) == (0, cordoned, "")
    held = "team: hold until 2023-11-15 01:13:20 +02:00: ticket 4711\n"
    assert quorate("hold", "--queue", "team", WHY, "--until", "1h") == (0, held, "")
    boosted = "big: boost until 2023-11-16 00:13:20 +02:00: ticket 4711\n"
    assert quorate("boost", "big", WHY, "--until=2023-11-15T22:13:20Z") == (0, boosted, "")
    assert quorate("status") == (0, STATUS.format(url=at_server.url), "")
    assert quorate("nodes").out == NODES_SHOWN
    assert quorate("queues").out.endswith(QUEUES_END)
    assert quorate("why", "big").out.splitlines() == [
        "big: queued for 0s",
        "  queue team is held by alice until 2023-11-14T23:13:20Z: ticket 4711",
    ]
    assert "\nBoosted    by alice until 2023-11-16 00:13:20 +02:00: ticket 4711\n" in quorate("describe", "big").out


def test_it_is_ended_by_hand_too(quorate: Quorate) -> None:
    quorate("cordon", "n1", "n2", WHY)
    quorate("hold", "big", "--queue", "team", WHY)
    quorate("boost", "big", WHY)
    over = "the {} by alice is over: ticket 4711"
    assert quorate("uncordon", "n1").out == f"n1: {over.format('cordon')}\n"
    released = f"big: {over.format('hold')}\nteam: {over.format('hold')}\n"
    assert quorate("hold", "--release", "big", "--queue", "team").out == released
    assert quorate("boost", "--release", "big").out == f"big: {over.format('boost')}\n"
    assert quorate("uncordon", "n1") == (0, "n1: nothing was in force by hand\n", "")


def test_programs_read_one_document(quorate: Quorate) -> None:
    document = json.loads(quorate("cordon", "n1", "n2", WHY, "-o", "json").out)
    assert document["apiVersion"] == "quorate.dev/v1"
    assert [item["subject"] for item in document["items"]] == [
        {"kind": "node", "name": "n1"},
        {"kind": "node", "name": "n2"},
    ]
    assert json.loads(quorate("status", "-o", "json").out)["byHand"] == document["items"]


def test_an_array_stands_for_its_jobs_that_have_not_ended(quorate: Quorate, site: Site, at_server: ApiServer) -> None:
    array = msgspec.structs.replace(spec(), array=JobArray("0-2"))
    document = {"apiVersion": "quorate.dev/v1", "kind": "Job", "metadata": {"name": "many"}, "spec": array}
    with Client(at_server.url, TOKEN) as client:
        client.submit_group(encode(document))
    lines = quorate("hold", "many", WHY).out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["many-0", "many-1", "many-2"]
    for index in range(3):
        site.store.jobs.finish(site.epoch(), JobName(f"many-{index}"), JobOutcome("cancelled", NOW))
    assert quorate("hold", "many", WHY) == (1, "", "error: many: all of its jobs have ended\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("cordon", "n1"), "say why: --reason TEXT."),
        (("hold", "big", "--reason", " "), "say why: --reason TEXT."),
        (("hold", WHY), "name a job, or a queue with --queue."),
        (("boost", "big", "--release", WHY), "--release takes neither --reason nor --until."),
    ],
)
def test_what_is_missing_is_said(quorate: Quorate, arguments: tuple[str, ...], said: str) -> None:
    ran = quorate(*arguments)
    assert (ran.exit_code, said in ran.err) == (64, True)


def test_a_name_of_a_job_never_holds_a_queue(quorate: Quorate) -> None:
    ran = quorate("hold", "team", WHY)
    assert (ran.exit_code, "There is no job team" in ran.err) == (1, True)


def test_an_end_that_is_too_far_is_refused_with_what_to_do(quorate: Quorate) -> None:
    ran = quorate("cordon", "n1", WHY, "--until", "2d")
    assert (ran.exit_code, "breakGlass.maxDuration" in ran.err) == (1, True)
