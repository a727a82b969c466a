"""`quorate get`, `describe` and `why`, in the words that people read and as the data that programs do."""

from __future__ import annotations

import json

import msgspec
import pytest

from reconciler.api.server import ApiServer
from reconciler.api.views import verdict_words
from reconciler.cli.why import why_lines
from reconciler.client import connect
from reconciler.lifecycle.jobs.backend_reports import AttemptReport, BackendReports
from reconciler.model.job_record import JobOutcome
from reconciler.protocols.backend import Activity, TaskStatus
from reconciler.protocols.history import Event
from reconciler.protocols.ledger import Claim, Marks
from solver.model.cluster import DeviceId, MigInstance
from solver.model.inflight import Intent
from solver.model.quantities import Cpu, Duration, Instant, Memory, MilliGpu
from solver.model.shape import Shape
from solver.model.workload import (
    JobName,
    MigSlot,
    QueueName,
    Stuck,
    TaskGroup,
    TaskPlacement,
    TimeLimitWarning,
    Together,
    TopologyRequest,
)
from solver.plan.estimates import EarliestStart
from solver.plan.plan import Waits
from solver.plan.reasons import CapacityReason, Protected
from solver.round.advice import help_for
from tests.contracts.simulated_worlds import NODES
from tests.reconciler.api.conftest import H100, NOW, Site, spec
from tests.reconciler.cli.conftest import Now, Quorate, on, submitted

TWO_DAYS_AGO = NOW.after(-50 * 3_600_000)

GET = """\
NAME   QUEUE  CLASS      STATE     GPUS    AGE  WHERE
huge   team   (default)  queued       8  1m30s
big    team   (default)  queued       4  1m30s
llama  team   (default)  starting     4   2d2h  n1, n2
bad    team   (default)  failed       1  1m30s  exit code 3
"""
GET_WIDE = """\
NAME   QUEUE  CLASS      STATE     GPUS   AGE  WHERE   TASKS  ATTEMPT  USER  SUBMITTED
llama  team   (default)  starting     4  2d2h  n1, n2      2        1  ada   2023-11-12 22:13:20 +02:00
"""
DESCRIBE = """\
Name       llama
Queue      team
Class      (default)
User       ada
Submitted  2023-11-12 22:13:20 +02:00
State      starting for 1m30s
Gang       2 tasks, 4 GPUs
  worker   2 x 2 GPUs
           true
Why        it holds its devices in attempt 1, on n1, n2
           its tasks are over 2 blocks of pool pool

2 tasks of attempt 1:
TASK      NODE  DEVICES
worker/0  n1    n1/0, n1/1
worker/1  n2    n2/0, n2/1

Events:
TIME                        EVENT  BY    CAUSE
2023-11-15 00:13:20 +02:00  bound  loop  attempt 1 on n1, n2
"""
WHY_QUEUED = """\
big: queued for 1m30s
  - queue team holds 4 of max 6 H100; this job needs 4
  - group worker needs room for 1 x 4 H100, room for 0: the free GPUs are scattered
  - earliest start unknown: 1 job that holds what it could use has no time limit
  Would help: 2 H100 less held in queue team, or its max at 8; nodes with room for one more task of 4 H100
"""
WHY_NEVER = """\
huge: queued for 1m30s
It can't run under this policy on this cluster, however long it waits:
  needs 8 H100; queue team may never hold more than 6
  Up to 6 H100 would fit in queue team.
"""
WHY_HOLDING = """\
llama: starting for 1m30s
  it holds its devices in attempt 1, on n1, n2
  its tasks are over 2 blocks of pool pool
"""
WHY_FAILED = """\
bad: failed with exit code 3, 1m30s ago, in attempt 2
  task worker/0 on n1 failed with exit code 3
  | Traceback
  | ValueError: \\x1b[2J
"""


@pytest.fixture(autouse=True)
def four_jobs(site: Site, at_server: ApiServer, now: Now) -> None:
    """One that holds devices, one that waits, one that failed, one that can never run."""
    llama = submitted(site, "llama", gpus=2, replicas=2, at=TWO_DAYS_AGO)
    submitted(site, "big", gpus=4)
    bad = submitted(site, "bad")
    submitted(site, "huge", gpus=8)
    site.bind("llama", on(NODES[0], 0, 1), on(NODES[1], 0, 1, index=1))
    said = "task worker/0 on n1 failed with exit code 3\nTraceback\nValueError: \x1b[2J"
    site.store.jobs.finish(site.epoch(), bad, JobOutcome("failed", NOW, 3, said, attempt=2))
    site.store.history.record_event(Event(NOW, "bound", llama, "attempt 1 on n1, n2", "loop"))
    now.advance(90)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("get",), GET),
        (("get", "llama", "-o", "wide"), GET_WIDE),
        (("describe", "llama"), DESCRIBE),
        (("why", "big"), WHY_QUEUED),
        (("why", "huge"), WHY_NEVER),
        (("why", "llama"), WHY_HOLDING),
        (("why", "bad"), WHY_FAILED),
    ],
)
def test_jobs_are_shown(quorate: Quorate, arguments: tuple[str, ...], expected: str) -> None:
    assert quorate(*arguments) == (0, expected, "")


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        (("--queue", "team"), ["huge", "big", "llama", "bad"]),
        (("--queue", "org"), ["huge", "big", "llama", "bad"]),
        (("--user", "ada"), ["huge", "big", "llama", "bad"]),
        (("--user", "grace"), []),
        (("--all", "--limit", "4"), ["huge", "big", "llama", "bad"]),
        (("--queue", "other"), []),
        (("--state", "queued"), ["huge", "big"]),
        (("--state", "failed", "--state", "starting"), ["bad", "llama"]),
        (("--limit", "1"), ["huge"]),
        (("llama", "--state", "queued"), []),
    ],
)
def test_jobs_are_filtered(quorate: Quorate, filters: tuple[str, ...], names: list[str]) -> None:
    listed = json.loads(quorate("get", *filters, "-o", "json").out)
    assert listed["apiVersion"] == "quorate.dev/v1"
    assert [job["name"] for job in listed["items"]] == names
    if not names:
        assert quorate("get", *filters).out == "no jobs\n"


def test_times_are_utc_in_json(quorate: Quorate) -> None:
    (job,) = json.loads(quorate("get", "llama", "-o", "json").out)["items"]
    assert job["submittedAt"] == "2023-11-12T20:13:20Z"


def test_the_reasons_of_a_job_that_has_a_promise_are_listed_too(at_server: ApiServer) -> None:
    with connect(at_server.url) as client:
        view, answer = client.job("big"), client.why("big")
    reserved = msgspec.structs.replace(view, state="reserved")
    assert list(why_lines(reserved, answer, NOW))[1:] == WHY_QUEUED.splitlines()[1:]


WHY_PROTECTED = """\
big: queued for 1m30s
  - evicting lent and 1 other would make room, and minRuntime of class batch (batch.yaml:9) protects them until 2026-11-20T12:03:00Z
  - needs 4 H100, 0 free
  - earliest start 2026-11-20T12:03:30Z, once lent may be evicted and has left
  Would help: a shorter minRuntime of class batch; 4 H100 more free
"""


def test_what_protects_others_from_a_job_is_said(at_server: ApiServer) -> None:
    until, lent = Instant.parse("2026-11-20T12:03:00Z"), JobName("lent")
    reasons = (
        Protected("minRuntime", lent, "batch", until, "batch.yaml:9", 1),
        CapacityReason(H100, MilliGpu(0), MilliGpu.gpus(4)),
    )
    verdict = Waits(
        JobName("big"), QueueName("team"), reasons, EarliestStart(until.after(30_000), after_protection_of=lent)
    )
    with connect(at_server.url) as client:
        view, answer = client.job("big"), client.why("big")
    answer = msgspec.structs.replace(
        answer, verdict=verdict, words=verdict_words(verdict), would_help=help_for(verdict)
    )
    assert list(why_lines(view, answer, NOW.after(90_000))) == WHY_PROTECTED.splitlines()


def test_a_description_says_what_would_help(quorate: Quorate) -> None:
    described = quorate("describe", "big").out
    assert (
        "Helps      2 H100 less held in queue team, or its max at 8\n           nodes with room for one more task of 4 H100\n"
        in described
    )
    assert "\nHelps " not in quorate("describe", "llama").out


def test_why_is_data_for_programs(quorate: Quorate) -> None:
    why = json.loads(quorate("why", "big", "-o", "json").out)
    assert (why["apiVersion"], why["state"], why["verdict"]["verdict"]) == ("quorate.dev/v1", "queued", "waits")
    assert [reason["code"] for reason in why["verdict"]["reasons"]] == ["quota-max", "no-room"]
    assert why["wouldHelp"][0] == "2 H100 less held in queue team, or its max at 8"


def test_a_description_is_data_for_programs(quorate: Quorate) -> None:
    described = json.loads(quorate("describe", "llama", "-o", "json").out)
    assert (described["apiVersion"], described["kind"]) == ("quorate.dev/v1", "JobDescription")
    assert [event["kind"] for event in described["events"]] == ["bound"]
    assert [task["node"] for task in described["job"]["tasks"]] == ["n1", "n2"]


def test_the_limit_a_job_runs_under_and_when_it_is_over_are_described(quorate: Quorate, site: Site) -> None:
    limited = msgspec.structs.replace(spec(), time_limit=Duration(7_200_000))
    site.store.jobs.submit(JobName("limited"), limited, "ada", NOW, "")
    assert "Time limit  2h\n" in quorate("describe", "limited").out
    claim = Claim(JobName("limited"), 1, (on(NODES[0], 2),), NOW, NOW, Duration(3_600_000))
    site.store.ledger.claim(site.epoch(), claim, Intent("start", claim.job, 1, NOW, NOW.after(1)))
    assert "Time limit  1h, ends by 2023-11-15 01:13:20 +02:00\n" in quorate("describe", "limited").out


IDLE_SINCE = "it has been idle since 2023-11-14T22:14:20Z; after 30m it is ended"
UNKNOWN = "it is not known what it does: its idle limit of 30m is not kept as long as that is so"


def watched(site: Site, activity: Activity | None) -> None:
    """An interactive job runs since NOW, and this was seen of it."""
    own = msgspec.structs.replace(spec(), type="interactive", idle_limit=Duration(1_800_000))
    job = site.store.jobs.submit(JobName("notebook"), own, "ada", NOW, "").name
    claim = Claim(job, 1, (on(NODES[1], 3),), NOW, idle_limit=own.idle_limit)
    site.store.ledger.claim(site.epoch(), claim, Intent("start", job, 1, NOW, NOW.after(1)))
    site.store.ledger.confirm_running(site.epoch(), job, 1, NOW)
    seen = TaskStatus(job, 1, "worker", 0, NODES[1].name, "running", NOW, activity=activity)
    site.sighted = BackendReports({}, {(job, 1): AttemptReport((seen,))})


@pytest.mark.parametrize(
    ("activity", "state", "where", "limit", "words"),
    [
        (
            Activity(NOW.after(60_000), NOW.after(780_000)),
            "running for 13m; idle for 12m of 30m",
            "n2; idle for 12m of 30m",
            "30m",
            (IDLE_SINCE,),
        ),
        (Activity(NOW.after(60_000), NOW.after(60_000)), "running for 13m", "n2", "30m", ()),
        (None, "running for 13m", "n2", "30m, but it is not known what the job does: it is not kept", (UNKNOWN,)),
    ],
)
def test_how_long_a_job_is_idle_is_seen_before_it_is_ended(
    quorate: Quorate,
    site: Site,
    now: Now,
    activity: Activity | None,
    state: str,
    where: str,
    limit: str,
    words: tuple[str, ...],
) -> None:
    watched(site, activity)
    now.advance(780 - 90)
    assert quorate("get", "notebook").out.splitlines()[1].endswith(f"13m  {where}")
    holds = ("it holds its devices in attempt 1, on n2", *words)
    assert quorate("why", "notebook").out.splitlines() == [f"notebook: {state}", *(f"  {line}" for line in holds)]
    described = quorate("describe", "notebook").out
    assert f"State        {state}\n" in described
    assert f"Idle limit   {limit}\n" in described


def test_a_stuck_job_and_one_near_its_limit_say_so(quorate: Quorate, site: Site) -> None:
    hour = Duration(3_600_000)
    own = msgspec.structs.replace(
        spec(),
        stuck=Stuck(hour, "fail"),
        time_limit=Duration(2 * hour),
        time_limit_warning=TimeLimitWarning(Duration(300_000)),
    )
    job = site.store.jobs.submit(JobName("hangs"), own, "ada", NOW, "").name
    claim = Claim(job, 1, (on(NODES[0], 2),), NOW, NOW, Duration(2 * hour))
    site.store.ledger.claim(site.epoch(), claim, Intent("start", job, 1, NOW, NOW.after(1)))
    marks = Marks(warned_at=NOW.after(2_000), stuck_at=NOW.after(1_000), still_since=NOW)
    site.store.ledger.mark(site.epoch(), job, 1, marks)
    assert quorate("why", "hangs").out.splitlines()[1:] == [
        "  it is stuck: it has made no progress since 2023-11-14T22:13:20Z; its tasks' logs have a dump of 2023-11-14T22:13:21Z",
        "  it holds its devices in attempt 1, on n1",
        "  its time limit is over at 2023-11-15T00:13:20Z; its tasks were told at 2023-11-14T22:13:22Z",
    ]
    described = quorate("describe", "hangs").out
    assert "If stuck    fail after 1h without progress\n" in described
    assert "Warned      5m before its time limit\n" in described


def test_a_service_with_less_than_it_should_have_is_degraded(quorate: Quorate, site: Site) -> None:
    group = TaskGroup("replica", 3, Shape(gpus=1), min_replicas=2)
    own = msgspec.structs.replace(spec(), type="service", task_groups=(group,))
    job = site.store.jobs.submit(JobName("serves"), own, "ada", NOW, "").name
    task = msgspec.structs.replace(on(NODES[0], 2), group="replica")
    claim = Claim(job, 1, (task,), NOW, NOW)
    site.store.ledger.claim(site.epoch(), claim, Intent("start", job, 1, NOW, NOW.after(1)))
    site.store.ledger.confirm_running(site.epoch(), job, 1, NOW)
    died = TaskStatus(job, 1, "replica", 0, NODES[0].name, "failed", NOW, exit_code=137)
    site.sighted = BackendReports({}, {(job, 1): AttemptReport((died,))})
    assert quorate("get", "serves").out.splitlines()[1].split()[:4] == ["serves", "team", "(default)", "degraded"]
    assert quorate("why", "serves").out.splitlines() == [
        "serves: degraded for 1m30s",
        "  it is degraded: it has 1 of at least 2 replicas; replica/0 ended with exit code 137 and will begin again",
        "  it holds its devices in attempt 1, on n1",
    ]
    (listed,) = json.loads(quorate("get", "serves", "-o", "json").out)["items"]
    assert (listed["gpus"], listed["gpusHeld"], len(listed["tasks"])) == (3, 1, 1)
    assert "1/3" in quorate("get", "serves").out
    assert quorate("get", "serves", "-o", "wide").out.count("1/3") == 2
    assert (listed["state"], listed["degraded"].partition(";")[0]) == ("running", "it has 1 of at least 2 replicas")


def test_units_of_several_groups_are_described(quorate: Quorate, site: Site) -> None:
    groups = (TaskGroup("prefill", 4, Shape(gpus=4)), TaskGroup("decode", 8, Shape(gpus=1)))
    for name, least, told in (("some", 3, "3 to 4"), ("all", None, "4")):
        known = Together(("prefill", "decode"), "rack", "island", units=4, min_units=least)
        own = msgspec.structs.replace(spec(), task_groups=groups, topology=TopologyRequest(together=(known,)))
        site.store.jobs.submit(JobName(name), own, "ada", NOW, "")
        described = quorate("describe", name).out
        assert f"{told} units of prefill and decode, each in one rack, best in one island\n" in described
    assert "  decode   6 to 8 (by 2) x 1 GPU\n" in quorate("describe", "some").out


def test_the_units_of_an_elastic_gang_are_described(quorate: Quorate, site: Site) -> None:
    group = TaskGroup("worker", 12, Shape(gpus=1), min_replicas=4)
    for name, step, told in (("free", 1, "4 to 12 x 1 GPU"), ("units", 4, "4 to 12 (by 4) x 1 GPU")):
        groups = (msgspec.structs.replace(group, replica_step=step),)
        site.store.jobs.submit(JobName(name), msgspec.structs.replace(spec(), task_groups=groups), "ada", NOW, "")
        assert f"  worker   {told}\n" in quorate("describe", name).out


def test_values_of_the_environment_are_not_described(quorate: Quorate) -> None:
    quorate("submit", "--name", "secretive", "--queue", "team", "--env", "API_KEY=canary", "--", "true")
    ran = quorate("describe", "secretive")
    assert "Environment  API_KEY\n" in ran.out
    assert "canary" not in ran.out


def test_secrets_are_described_by_their_names(quorate: Quorate, site: Site) -> None:
    given = "--secret", "WANDB_API_KEY=wandb", "--secret", "KEY=tls/key.pem"
    quorate("submit", "--name", "secretive", "--queue", "team", *given, "--", "true")
    assert "Secrets    wandb as WANDB_API_KEY, tls/key.pem as KEY\n" in quorate("describe", "secretive").out
    wrong = quorate("submit", "--name", "other", "--queue", "team", "--secret", "KEY=../x", "--", "true")
    assert (wrong.exit_code, "'../x'" in wrong.err or "'..'" in wrong.err) == (64, True)


def test_the_folder_in_which_its_tasks_begin_is_described(quorate: Quorate) -> None:
    quorate("submit", "--name", "placed", "--queue", "team", "--chdir", "/data/run", "--", "true")
    assert "Folder     /data/run\n" in quorate("describe", "placed").out


def test_an_image_is_given_by_an_option(quorate: Quorate) -> None:
    quorate("submit", "--name", "contained", "--queue", "team", "--image", "example.org/train:1", "--", "true")
    assert "Container  example.org/train:1, network host\n" in quorate("describe", "contained").out


def test_a_cancelled_job_says_by_whom(quorate: Quorate, site: Site) -> None:
    site.store.jobs.request_cancel(JobName("big"), "bob")
    assert "Cancel     asked for by bob\n" in quorate("describe", "big").out


@pytest.mark.parametrize("command", ["get", "describe", "why", "logs", "wait", "cancel"])
def test_the_nearest_job_is_offered(quorate: Quorate, command: str) -> None:
    assert quorate(command, "lama") == (1, "", "error: There is no job lama.\n  Did you mean llama?\n")


def test_the_nearest_queue_is_offered(quorate: Quorate) -> None:
    assert quorate("get", "--queue", "taem") == (1, "", "error: there is no queue taem\n  Did you mean team?\n")


@pytest.mark.parametrize(
    ("shape", "size", "each"),
    [
        (
            Shape(mig="1g.10gb", gpu_types=(H100,), cpu=Cpu(4000)),
            "3 MIG instances",
            "a MIG instance 1g.10gb (H100), 4 CPU cores",
        ),
        (Shape(gpu_memory=Memory(20 << 30)), "3 parts of GPUs", "20Gi of a GPU's memory"),
        (Shape(mig="1g.10gb", devices=2), "6 MIG instances", "2 MIG instances 1g.10gb"),
        (Shape(gpu_memory=Memory(20 << 30), devices=2), "6 parts of GPUs", "20Gi of memory of each of 2 GPUs"),
        (Shape(gpu_fraction=MilliGpu(500), devices=2), "3 GPUs", "0.5 of each of 2 GPUs"),
        (Shape(1, min_gpu_memory=Memory(40 << 30)), "3 GPUs", "1 GPU, GPUs of at least 40Gi"),
        (Shape(cpu=Cpu(4000)), "0 GPUs", "4 CPU cores"),
    ],
)
def test_what_a_job_asks_for_of_gpus_is_said(quorate: Quorate, site: Site, shape: Shape, size: str, each: str) -> None:
    group = msgspec.structs.replace(spec().task_groups[0], replicas=3, shape=shape)
    site.store.jobs.submit(JobName("small"), msgspec.structs.replace(spec(), task_groups=(group,)), "ada", NOW, "")
    described = quorate("describe", "small").out
    assert f"Gang       3 tasks, {size}\n" in described
    assert f"worker   3 x {each}\n" in described
    row = quorate("get", "small").out.splitlines()[1].split()
    is_known = size.split()[1:] == ["GPUs"]  # of the others nobody knows before it starts
    assert row[4] == (size.split(maxsplit=1)[0] if is_known else "1m30s")


def test_what_a_mig_instance_is_of_a_gpu_is_known_once_it_is_held(quorate: Quorate, site: Site) -> None:
    group = msgspec.structs.replace(spec().task_groups[0], shape=Shape(mig="1g.10gb"))
    job = JobName("small")
    site.store.jobs.submit(job, msgspec.structs.replace(spec(), task_groups=(group,)), "ada", NOW, "")
    slot = MigSlot(DeviceId("n2/2"), MigInstance("1g.10gb", 0), MilliGpu(125))
    task = TaskPlacement("worker", 0, NODES[1].name, (slot.instance.id_on(slot.gpu),), mig=slot)
    site.store.ledger.claim(site.epoch(), Claim(job, 1, (task,), NOW), Intent("start", job, 1, NOW, NOW.after(1)))
    assert quorate("get", "small").out.splitlines()[1].split()[4] == "0.125"


def test_how_long_a_job_waits_is_not_counted_from_its_submission_where_it_ran_since(
    quorate: Quorate, site: Site, now: Now
) -> None:
    job, epoch = JobName("llama"), site.epoch()
    site.store.jobs.request_suspend(JobName("big"), "ada")
    site.store.ledger.release(epoch, job, 1, now.instant)
    assert quorate("why", "big").out.splitlines()[0] == "big: suspended, submitted 1m30s ago"
    assert quorate("why", "llama").out.splitlines()[0] == "llama: queued, submitted 2d2h ago, after attempt 1"


def test_a_kind_in_place_of_a_job_is_told_with_its_command(quorate: Quorate) -> None:
    assert quorate("get", "nodes") == (1, "", "error: There is no job nodes.\n  nodes are shown by `quorate nodes`.\n")


def test_a_server_without_tls_is_told_as_that(quorate: Quorate, at_server: ApiServer) -> None:
    ran = quorate("get", "--server", at_server.url.replace("http:", "https:"))
    assert (ran.exit_code, f"it speaks no TLS. Write {at_server.url}\n" in ran.err) == (8, True)
