"""`quorate queues`, `nodes`, `rounds` and `status`, in words and as data."""

from __future__ import annotations

import json
import re
import sys

import msgspec
import pytest

from reconciler.api.payloads import NodeView
from reconciler.api.server import ApiServer
from reconciler.cli.nodes import health_words, parts_of, state_of
from reconciler.cli.rounds import RoundDocument
from reconciler.cli.tables import print_table
from reconciler.cli.times import local
from reconciler.model.broken_limit import BrokenLimit
from reconciler.model.health_record import PartHealth
from reconciler.model.watch_status import FollowedKind
from solver.model.cluster import MigInstance, Node
from solver.model.document import decode
from solver.model.quantities import Cpu, Memory, MilliGpu
from solver.model.workload import JobName, QueueName
from solver.policy.host_share import CpuQuota
from solver.policy.policy import policy_of
from solver.policy.user_shares import UserShares
from solver.round.solve import solve
from tests.contracts.simulated_worlds import NODES
from tests.reconciler.api.conftest import H100, NOW, Site, spec
from tests.reconciler.cli.conftest import Now, Quorate, on, submitted
from tests.solver.quota.test_hours import hours_of
from tests.solver.worlds import quota_of

QUEUES = """\
QUEUE    RUNNING  PENDING  GPU TYPE  GUARANTEED  LENDABLE   MAX  FAIR SHARE  USED  BORROWED  WAITING  ACTIVE  PAST GPU-HOURS
org            1        1  H100               8       all  none           6     5         0        4       -             0.0
  other        0        0  H100               4       all  none           0     0         0        0                     0.0
  team         1        1  H100               4       all     6           6     5         1        4       -             0.0
"""
USERS = (
    "user (none) H100 2 0 4 0.0",
    "user ada (weight 3) H100 4 5 4 0.0",
)
HOST = """
QUEUE    RESOURCE  GUARANTEED  LENDABLE  MAX  PER USER  FAIR SHARE  USED  WITHOUT GPUS  BORROWED  WAITING
org      cpu                8         2   64        16           0     0             0         0        0
  other  cpu                8         2   64        16           0     0             0         0        0
  team   cpu                8         2   64        16           0     0             0         0        0
"""
NODES_SHOWN = """\
NODE  POOL  GPU TYPE  GPUS   CPU   MEMORY  STATE  JOBS
n1    pool  H100       4/4  0/64  0/256Gi  ready  llama
n2    pool  H100       1/4  0/64  0/256Gi  ready  llama
"""
ROUNDS = """\
ROUND  TIME                        POLICY  STARTS  WAITS  NEVER  DECIDED BY  MS
    1  2023-11-15 00:13:20 +02:00  abc123       0      1      0  none        14
"""
ROUND = """\
Round   1
Time    2023-11-15 00:13:20 +02:00
Policy  abc123
Plan    {plan}
Took    act 2 ms, solve 12 ms

wait     big: queue team holds 5 of max 6 H100; this job needs 4; needs 4 H100, 3 free
help     big: 3 H100 less held in queue team, or its max at 9; 1 H100 more free
"""
STATUS = """\
Server           {url}
Leader           test, epoch 1
Policy in force  abc123
Jobs             1 queued, 1 starting

CONDITION  STATUS  REASON  MESSAGE
Ready      True
"""
LIMITS = """
Limits that are to be kept again:
QUEUE  GPU TYPE  HELD  MAX  UNTIL                       EVICTED THEN
team   H100         5    2  2023-11-15 01:13:20 +02:00  d\\x1b, c, b and 1 more
team   H100         5    2  2023-11-15 00:13:20 +02:00  none (evict: preemptible)
other  H100         5    2                              none
"""


FOLLOWED = """
What is followed of the cluster:
KIND   VERSION  OBJECTS  BREAKS  STATE
nodes  v1             3       2  followed
pods   v1            40       0  behind: nothing heard for 200 s; no answer
"""


@pytest.fixture(autouse=True)
def two_jobs(site: Site, at_server: ApiServer, now: Now) -> None:
    """One that borrows, one that waits."""
    submitted(site, "llama", gpus=4, replicas=2)
    submitted(site, "big", gpus=4)
    site.bind("llama", on(NODES[0], 0, 1, 2, 3), on(NODES[1], 0, index=1))


@pytest.mark.parametrize(("command", "expected"), [("queues", QUEUES), ("nodes", NODES_SHOWN)])
def test_the_cluster_is_shown(quorate: Quorate, command: str, expected: str) -> None:
    assert quorate(command) == (0, expected, "")


def test_users_that_share_a_queue_stand_below_it(quorate: Quorate, site: Site) -> None:
    shared = msgspec.structs.replace(site.policy.queues[-1], users=UserShares(True, {"ada": 3}))
    site.policy = policy_of((*site.policy.queues[:-1], shared))
    site.store.jobs.submit(JobName("anyones"), spec(4), "", NOW, "")
    shown = quorate("queues", "--users").out.splitlines()
    assert tuple(" ".join(line.split()) for line in shown[4:]) == USERS
    of_team = json.loads(quorate("queues", "--users", "-o", "json").out)["items"][-1]["users"]
    assert [(one["user"], one["weight"], one["fairShare"], one["held"]) for one in of_team] == [
        ("", 1, 2, 0),
        ("ada", 3, 4, 5),
    ]
    assert json.loads(quorate("queues", "-o", "json").out)["items"][-1]["users"] == []


def test_a_weight_for_a_name_like_that_of_a_user_is_told(quorate: Quorate, site: Site) -> None:
    shared = msgspec.structs.replace(site.policy.queues[-1], users=UserShares(True, {"adda": 3}))
    site.policy = policy_of((*site.policy.queues[:-1], shared))
    told = quorate("queues", "--users")
    assert told.err == "warning: queue team: a weight names user adda, of whom no job is known; did you mean ada?\n"
    assert quorate("queues").err == ""


def test_cpu_and_memory_stand_below_the_queues_where_one_has_a_quota_of_them(quorate: Quorate, site: Site) -> None:
    queues = tuple(
        msgspec.structs.replace(q, host_quota=(CpuQuota(Cpu(8000), Cpu(64_000), Cpu(2000), Cpu(16_000)),))
        for q in site.policy.queues
    )
    site.policy = msgspec.structs.replace(site.policy, queues=queues)
    shown = quorate("queues").out
    assert shown.startswith(QUEUES)
    assert shown.removeprefix(QUEUES) == HOST
    (org, *_) = json.loads(quorate("queues", "-o", "json").out)["items"]
    assert {name: org["host"][0][name] for name in ("max", "lendable", "perUser", "shared")} == {
        "max": "64",
        "lendable": "2",
        "perUser": "16",
        "shared": False,
    }


def test_hours_of_quota_stand_below_the_queues(quorate: Quorate, site: Site) -> None:
    team = site.policy.queues[-1]
    nights = hours_of("nights", [(int(NOW) // 3_600_000, int(NOW) // 3_600_000 + 1)], quota_of("H100", most=3))
    changed = tuple(msgspec.structs.replace(one, hours=(nights,)) if one is team else one for one in site.policy.queues)
    site.policy = msgspec.structs.replace(site.policy, queues=changed)
    told = quorate("queues").out
    assert f"queue {team.name}: hours nights until {nights.repeat.windows[0].until}, then none" in told
    view = next(one for one in json.loads(quorate("queues", "-o", "json").out)["items"] if one["name"] == team.name)
    assert (view["hours"]["open"], view["gpus"][0]["max"]) == (["nights"], 3)


def test_rounds_are_listed_and_one_is_told(quorate: Quorate, site: Site) -> None:
    plan = site.record_round().plan
    assert quorate("rounds") == (0, ROUNDS, "")
    assert quorate("rounds", "1") == (0, ROUND.format(plan=plan.digest), "")


def test_status_is_shown(quorate: Quorate, at_server: ApiServer) -> None:
    assert quorate("status") == (0, STATUS.format(url=at_server.url), "")


def test_limits_that_are_to_be_kept_again_stand_below_the_status(
    quorate: Quorate, at_server: ApiServer, site: Site
) -> None:
    held, most, jobs = MilliGpu.gpus(5), MilliGpu.gpus(2), tuple(JobName(name) for name in ("d\x1b", "c", "b", "a"))
    site.broken_limits = (
        BrokenLimit(QueueName("team"), H100, held, most, "preemptible", NOW.after(3_600_000), jobs),
        BrokenLimit(QueueName("team"), H100, held, most, "preemptible", NOW),
        BrokenLimit(QueueName("other"), H100, held, most, "none"),
    )
    assert quorate("status") == (0, STATUS.format(url=at_server.url) + LIMITS, "")
    (first, *_) = json.loads(quorate("status", "-o", "json").out)["brokenLimits"]
    assert (first["queue"], first["deadline"]) == ("team", "2023-11-14T23:13:20Z")


def test_how_far_the_objects_of_a_cluster_are_followed_stands_below_the_status(
    quorate: Quorate, at_server: ApiServer, site: Site
) -> None:
    site.followed = (
        FollowedKind("nodes", "v1", True, 3, NOW, 1.5, 2),
        FollowedKind("pods", "v1", True, 40, NOW, 200.4, problem="no answer"),
        FollowedKind("jobsets", "v1alpha2", False, 0, is_absent=True),
    )
    assert quorate("status") == (0, STATUS.format(url=at_server.url) + FOLLOWED, "")
    assert len(json.loads(quorate("status", "-o", "json").out)["followed"]) == 3


@pytest.mark.parametrize("command", ["queues", "nodes", "rounds"])
def test_lists_are_one_document_for_programs(quorate: Quorate, command: str, site: Site) -> None:
    site.record_round()
    document = json.loads(quorate(command, "-o", "json").out)
    assert document["apiVersion"] == "quorate.dev/v1"
    assert document["items"]


def test_status_is_data_for_programs(quorate: Quorate) -> None:
    status = json.loads(quorate("status", "-o", "json").out)
    assert (status["apiVersion"], status["liveJobs"]) == ("quorate.dev/v1", {"queued": 1, "starting": 1})


def test_a_round_as_data_can_be_solved_again(quorate: Quorate, site: Site) -> None:
    site.record_round()
    printed = quorate("rounds", "1", "-o", "json").out
    assert (json.loads(printed)["apiVersion"], json.loads(printed)["kind"]) == ("quorate.dev/v1", "Round")
    record = decode(printed, RoundDocument)
    assert solve(record.snapshot, record.policy, None) == record.plan


@pytest.mark.parametrize(
    ("node", "state"),
    [
        (NODES[0], "ready"),
        (msgspec.structs.replace(NODES[0], ready=False), "not ready"),
        (msgspec.structs.replace(NODES[0], cordoned=True), "cordoned"),
        (msgspec.structs.replace(NODES[0], ready=False, cordoned=True), "not ready, cordoned"),
        (
            msgspec.structs.replace(
                NODES[0], gpus=tuple(msgspec.structs.replace(gpu, healthy=gpu.index > 0) for gpu in NODES[0].gpus)
            ),
            "ready, 1 unhealthy GPU",
        ),
    ],
)
def test_what_keeps_a_node_from_work_is_said(node: Node, state: str) -> None:
    assert state_of(node) == state


def test_what_a_nodes_gpus_are_partitioned_into_is_said() -> None:
    made = (MigInstance("1g.10gb", 0), MigInstance("1g.10gb", 1))
    gpus = (msgspec.structs.replace(NODES[0].gpus[0], instances=made), *NODES[0].gpus[1:])
    node = msgspec.structs.replace(NODES[0], gpus=gpus)
    view = NodeView(node, (), Cpu(0), Memory(0), (), changing=(gpus[1].id,))
    assert list(parts_of(view)) == ["2 instances on 1 GPU", "1 GPU being partitioned"]
    assert list(parts_of(msgspec.structs.replace(view, node=NODES[0], changing=()))) == []


def test_why_a_node_or_gpu_is_not_well_is_said() -> None:
    part = PartHealth("", "suspect", NOW, "it is not ready")
    assert health_words(part) == f"health: suspect since {local(NOW)}: it is not ready"
    assert health_words(msgspec.structs.replace(part, part="n1/0")).startswith("n1/0: suspect since ")


def test_nothing_is_cut_where_a_program_reads(capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * 500
    print_table(("NAME", "[b]N"), ((long, "1"), ("a\x1b[2J", "22")), right=("[b]N",))
    assert capsys.readouterr().out.splitlines() == [
        "NAME" + " " * 496 + "  [b]N",
        long + "     1",
        "a\\x1b[2J" + " " * 492 + "    22",
    ]


@pytest.mark.parametrize(
    ("columns", "headings"),
    [(40, "NAME STATE AGE CLASS"), (32, "NAME STATE AGE"), (26, "NAME STATE"), (10, "NAME STATE")],
)
def test_a_narrow_terminal_goes_without_columns_and_breaks_no_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: int, headings: str
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.delenv("NO_COLOR", raising=False)
    print_table(
        ("NAME", "STATE", "AGE", "CLASS"), (("a-name-that-is-long", "failed", "2d", "low"),), spare=("CLASS", "AGE")
    )
    head, row = (re.sub("\x1b[^m]*m", "", line) for line in capsys.readouterr().out.splitlines())
    assert head.split() == headings.split()
    assert row.split()[:2] == ["a-name-that-is-long", "failed"]


def test_a_narrow_terminal_goes_first_without_columns_that_have_no_value(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for name, value in (("TERM", "xterm"), ("COLUMNS", "20"), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)
    print_table(
        ("NAME", "ACTIVE", "AGE", "IDLE"), (("training", "-", "2d", ""), ("notebook", "-", "", "")), spare=("AGE",)
    )
    head = re.sub("\x1b[^m]*m", "", capsys.readouterr().out.splitlines()[0])
    assert head.split() == ["NAME", "AGE"]


def test_states_have_colours_on_a_terminal_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    print_table(("NAME", "STATE"), (("failed", "failed"),))
    assert "\x1b" not in capsys.readouterr().out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    print_table(("NAME", "STATE"), (("failed", "failed"),))
    assert capsys.readouterr().out.splitlines()[1] == "failed  \x1b[31mfailed\x1b[0m"


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (40, ["NAME       CAUSE", "  team-a   exit code 7", "  ranking"]),
        (20, ["NAME       CAUSE", "  team-a   exit code", "           7", "  ranking"]),
        (10, ["NAME       CAUSE", "  team-a   exit code 7", "  ranking"]),
    ],
)
def test_a_terminal_gets_colour_and_cells_that_are_wrapped_between_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: int, expected: list[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.delenv("NO_COLOR", raising=False)
    print_table(("NAME", "CAUSE"), (("  team-a", "exit code 7"), ("  ranking", "")))
    head, *rows = capsys.readouterr().out.splitlines()
    assert "\x1b[1m" in head
    assert [re.sub("\x1b[^m]*m", "", head).rstrip(), *rows] == expected
