"""What the API answers, through the client that the command line uses."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from reconciler.api.guard import Guard
from reconciler.api.job_reader import PAGE_MAX
from reconciler.api.job_routes import BODY_BYTES_MAX
from reconciler.api.payloads import HeldDevice
from reconciler.api.problems import NotReadyError, RequestRefusedError
from reconciler.api.server import ApiServer
from reconciler.api.submission import require_admissible
from reconciler.api.views import node_views, queue_views
from reconciler.client import ApiError, Client, NotAuthorisedError, ServerUnreachableError
from reconciler.control.queue_use import queue_uses
from reconciler.lifecycle.jobs.backend_reports import BackendReports
from reconciler.model.facts import GpuFacts, NodeFacts
from reconciler.model.job_groups import NewJob, Submission
from reconciler.model.job_record import JobOutcome
from reconciler.model.queue_line import QueueLine
from reconciler.protocols.history import Event
from reconciler.store.jobs import SqlJobSource
from solver.model.cluster import MigInstance
from solver.model.document import digest
from solver.model.inflight import Counter, InFlight, Repartitioning
from solver.model.quantities import MilliGpu
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Container, JobName, MigSlot, QueueName, TaskPlacement
from solver.plan.estimates import EndUnknown
from solver.plan.hopes import what_would_help
from solver.plan.plan import Inadmissible, Starts, Waits
from solver.plan.reasons import QuotaMax
from solver.plan.refusals import AboveMax, UnknownName
from solver.policy.images import ImagePolicy
from solver.policy.policy import Queue, Quota, policy_of
from tests.contracts.simulated_worlds import NODES
from tests.reconciler.api.conftest import H100, NOW, POLICY, REVISION, TOKEN, Site, spec
from tests.reconciler.api.web import WEB

JOB = JobName("job")


def test_a_job_is_submitted_under_its_owners_name_and_wakes_the_loop(site: Site, client: Client) -> None:
    view = client.submit(JOB, spec(2))
    assert (view.name, view.spec, view.user, view.state) == (JOB, spec(2), "alice", "queued")
    assert client.job("job") == view
    assert site.woken == 1


def test_yaml_is_taken_as_it_was_written(client: Client) -> None:
    document = b"""
    apiVersion: quorate.dev/v1
    kind: Job
    metadata: {name: job}
    spec: {queue: team, taskGroups: [{name: worker, replicas: 1, shape: {gpus: 1}}], command: ["true"]}
    """
    assert client.submit_document(document).spec == spec()


def test_an_idempotency_key_makes_repeating_harmless(client: Client) -> None:
    first = client.submit(JOB, spec(), "key")
    assert client.submit(JOB, spec(), "key") == first
    with pytest.raises(ApiError) as refused:
        client.submit(JOB, spec(), "other key")
    assert (refused.value.status, refused.value.problem.code) == (409, "job-exists")
    assert len(client.jobs().items) == 1


def test_a_job_that_could_never_run_is_refused_with_reasons(site: Site, client: Client) -> None:
    with pytest.raises(ApiError, match="may never hold more than 6") as refused:
        client.submit(JOB, spec(8))
    assert (refused.value.status, refused.value.problem.code) == (422, "inadmissible")
    assert refused.value.problem.reasons == (AboveMax(spec().queue, H100, MilliGpu.gpus(6), MilliGpu.gpus(8)),)
    assert client.jobs().items == ()
    assert site.woken == 0


def test_a_job_that_names_a_retry_policy_that_is_not_there_is_refused(client: Client) -> None:
    with pytest.raises(ApiError) as refused:
        client.submit(JOB, msgspec.structs.replace(spec(), retry_policy="trainng"))
    problem = refused.value.problem
    assert (refused.value.status, problem.code, problem.fix) == (422, "unknown-retry-policy", "Did you mean training?")
    assert client.jobs().items == ()
    assert client.submit(JOB, msgspec.structs.replace(spec(), retry_policy="training")).name == JOB


def test_policy_says_in_which_images_jobs_run(site: Site, client: Client) -> None:
    site.operations = msgspec.structs.replace(
        site.operations, images=ImagePolicy(require_digest=True, registries=("registry.example.org/vision",))
    )
    content = "sha256:" + 64 * "a"

    def refusal(image: str) -> tuple[str, str]:
        with pytest.raises(ApiError) as refused:
            client.submit(JOB, msgspec.structs.replace(spec(), container=Container(image)))
        assert refused.value.problem.code == "image-not-allowed"
        return str(refused.value.problem.detail), refused.value.problem.fix

    elsewhere = refusal(f"registry.example.org/visionary@{content}")
    assert elsewhere[1] == "Use one from registry.example.org/vision."
    assert refusal("train:latest")[1] == elsewhere[1]
    message, fix = refusal("registry.example.org/vision/train:latest")
    assert "is not named by its digest" in message
    assert fix.startswith("Write it as registry.example.org/vision/train:latest@sha256:")
    good = Container(f"registry.example.org/vision/train:latest@{content}")
    assert client.submit(JOB, msgspec.structs.replace(spec(), container=good)).spec.container == good


def test_a_malformed_job_is_refused_with_every_problem(client: Client) -> None:
    document = b'{"apiVersion": "quorate.dev/v1", "kind": "Job", "metadata": {"name": "job"}, "spec": {"que": "team"}}'
    with pytest.raises(ApiError) as refused:
        client.submit_document(document)
    assert (refused.value.status, refused.value.problem.code) == (422, "invalid-document")
    assert {"unknown-field", "missing-field"} <= {problem.code for problem in refused.value.problem.problems}


def test_a_huge_body_is_not_read(client: Client) -> None:
    with pytest.raises(ApiError) as refused:
        client.submit_document(b" " * (BODY_BYTES_MAX + 1))
    assert (refused.value.status, refused.value.problem.code) == (413, "too-large")


def test_jobs_are_listed_newest_first_with_what_they_hold(site: Site, client: Client) -> None:
    client.submit(JobName("first"), spec())
    client.submit(JobName("second"), spec())
    task = TaskPlacement("worker", 0, NODES[0].name, (NODES[0].gpus[0].id,))
    site.bind("first", task)
    second, first = client.jobs().items
    assert (first.name, first.state, first.attempt, first.tasks) == ("first", "starting", 1, (task,))
    assert (second.name, second.state, second.tasks) == ("second", "queued", ())
    assert [view.name for view in client.jobs(limit=1).items] == ["second"]


def test_a_page_has_a_thousand_jobs_at_most_and_the_next_one_the_rest(client: Client, site: Site) -> None:
    """A larger one would take the server seconds, and whoever else asks meanwhile."""
    asked = [Submission(JobName(f"j{number}"), spec(), "alice", NOW.after(number)) for number in range(PAGE_MAX + 5)]
    site.store.jobs.submit_each(asked)
    first = client.jobs(limit=10_000)
    rest = client.jobs(10_000, first.next)
    assert (len(first.items), len(rest.items), rest.next) == (PAGE_MAX, 5, "")
    assert {view.name for view in (*first.items, *rest.items)} == {each.name for each in asked}


def test_why_says_how_far_apart_a_job_runs_as_soon_as_nodes_are_known(site: Site, client: Client) -> None:
    client.submit(JOB, spec(1, replicas=2))
    gpus = [(known.name, known.gpus[0].id) for known in NODES[:2]]
    site.bind(JOB, *(TaskPlacement("worker", index, on, (gpu,)) for index, (on, gpu) in enumerate(gpus)))
    holds = "it holds its devices in attempt 1, on n1, n2"
    assert client.why(JOB).words == (holds, "its tasks are over 2 blocks of pool pool")

    def too_early() -> Snapshot:
        raise NotReadyError("no round yet")

    services = replace(site.services(), snapshot=too_early)
    with ApiServer(services, Guard(TOKEN, user="alice")) as server, Client(server.url, TOKEN) as early:
        assert early.why(JOB).words == (holds,)


def test_why_gives_the_verdict_and_says_it_in_words(site: Site, client: Client) -> None:
    client.submit(JobName("a"), spec(4))
    client.submit(JobName("b"), spec(4))
    starts, waits = client.why("a"), client.why("b")
    assert isinstance(starts.verdict, Starts)
    assert starts.words == ("it starts: 4 GPUs, 4 of them inside the guarantee",)
    assert isinstance(waits.verdict, Waits)
    assert any(isinstance(reason, QuotaMax) for reason in waits.verdict.reasons)
    assert waits.verdict.estimate == EndUnknown(without_limit=1)
    assert waits.words == (*map(str, waits.verdict.reasons), str(waits.verdict.estimate))
    assert waits.would_help == what_would_help(waits.verdict.reasons) != ()
    assert starts.would_help == ()


def test_why_says_what_would_fit_in_place_of_a_job_that_can_never_run(site: Site, client: Client) -> None:
    site.store.jobs.submit(JobName("huge"), spec(8), "alice", NOW, "")
    why = client.why("huge")
    assert isinstance(why.verdict, Inadmissible)
    assert why.would_help == ("Up to 6 H100 would fit in queue team.",)


def test_a_job_that_rests_is_not_told_what_would_help_it_in_a_round(site: Site, client: Client) -> None:
    client.submit(JobName("a"), spec(4))
    client.submit(JobName("b"), spec(4))
    client.suspend("b")
    assert client.why("b").would_help == ()


def test_why_of_an_ended_job_is_how_it_ended(site: Site, client: Client) -> None:
    client.submit(JOB, spec())
    site.store.jobs.finish(
        site.epoch(), JOB, JobOutcome("failed", NOW, 3, "worker/0 ended with exit code 3", attempt=2)
    )
    why = client.why("job")
    assert (why.state, why.verdict, why.words) == ("failed", None, ("worker/0 ended with exit code 3",))
    assert client.job("job").attempt == 2


def test_cancelling_is_noted_and_repeatable(site: Site, client: Client) -> None:
    client.submit(JOB, spec())
    assert client.cancel("job").cancel_requested_by == "alice"
    assert client.cancel("job").cancel_requested_by == "alice"
    assert site.woken == 3


def test_events_are_read_oldest_first(site: Site, client: Client) -> None:
    client.submit(JOB, spec())
    events = tuple(Event(NOW.after(age), "bound", "job", f"cause {age}", "loop") for age in range(3))
    for event in events:
        site.store.history.record_event(event)
    submitted, *others = client.events("job").items
    assert (submitted.kind, submitted.actor, submitted.state) == ("submitted", "alice", "queued")
    assert tuple(others) == events
    assert client.events("job", limit=1).items == events[2:]


def test_logs_are_followed_by_asking_again(site: Site, client: Client) -> None:
    client.submit(JOB, spec())
    with pytest.raises(ApiError, match="it has not started yet"):
        client.log("job")
    site.bind("job", TaskPlacement("worker", 0, NODES[0].name, (NODES[0].gpus[0].id,)))
    site.logs["job", 1, "worker", 0] = b"\xff<script>\x1b[31m"
    assert client.log("job") == b"\xff<script>\x1b[31m"
    assert client.log("job", offset=9) == b"\x1b[31m"
    assert client.log("job", offset=14) == b""
    with pytest.raises(ApiError, match="it has no task worker/1") as refused:
        client.log("job", index=1)
    assert refused.value.status == 404


def test_who_asks_about_one_job_has_no_others_read(site: Site, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    client.submit(JOB, spec())
    site.bind("job", TaskPlacement("worker", 0, NODES[0].name, (NODES[0].gpus[0].id,)))
    site.logs["job", 1, "worker", 0] = b"said"

    def all_of_them(_: SqlJobSource) -> None:
        raise AssertionError("thousands may live")

    monkeypatch.setattr(SqlJobSource, "live_jobs", all_of_them)
    assert client.job(JOB).state == client.cancel(JOB).state == "starting"
    assert client.log(JOB) == client.log(JOB, attempt=1) == b"said"


def test_queues_show_what_they_lend() -> None:
    entry = Quota(H100, guaranteed=MilliGpu.gpus(4), lendable=MilliGpu(1_500))
    policy = policy_of((Queue(QueueName("all")), Queue(QueueName("some"), quota=(entry,))))
    views = queue_views(queue_uses(snapshot_of(NOW, NODES, []), policy), {})
    assert [view.gpus[0].lendable for view in views] == [None, MilliGpu(1_500)]


def test_queues_show_quota_and_use_up_the_tree(site: Site, client: Client) -> None:
    client.submit(JobName("a"), spec(2))
    client.submit(JobName("b"), spec(1, replicas=3))
    site.bind("a", TaskPlacement("worker", 0, NODES[0].name, tuple(gpu.id for gpu in NODES[0].gpus[:2])))
    org, other, team = client.queues().items
    none, two, three, four, five, six, eight = map(MilliGpu.gpus, (0, 2, 3, 4, 5, 6, 8))
    assert org.gpus == (QueueLine(H100, eight, None, fair_share=five, held=two, borrowed=none, waiting=three),)
    assert other.gpus == (QueueLine(H100, four, None, fair_share=none, held=none, borrowed=none, waiting=none),)
    assert team.gpus == (QueueLine(H100, four, six, fair_share=five, held=two, borrowed=none, waiting=three),)
    assert (org.running, org.pending, other.pending, team.parent, team.weight) == (1, 1, 0, "org", 2)


def test_nodes_show_who_holds_what(site: Site, client: Client) -> None:
    client.submit(JOB, spec())
    device = NODES[1].gpus[3].id
    site.bind("job", TaskPlacement("worker", 0, NODES[1].name, (device,)))
    first, second = client.nodes().items
    assert (first.node, first.held) == (NODES[0], ())
    assert second.held == (HeldDevice(device, JOB),)


def test_an_instance_that_is_held_is_part_of_its_gpu(site: Site, client: Client) -> None:
    client.submit(JOB, spec())
    gpu, instance = NODES[1].gpus[3].id, MigInstance("3g.40gb", 4)
    slot = MigSlot(gpu, instance, MilliGpu(500))
    site.bind("job", TaskPlacement("worker", 0, NODES[1].name, (instance.id_on(gpu),), mig=slot))
    assert client.nodes().items[1].held == (HeldDevice(instance.id_on(gpu), JOB, MilliGpu(500)),)
    site.record_round()
    families = {family.name: family for family in text_string_to_metric_families(client.metrics())}
    states = {s.labels["state"]: s.value for s in families["quorate_gpus"].samples}
    assert states == {"free": 7.0, "held": 1.0, "cordoned": 0.0, "unhealthy": 0.0}


def test_several_instances_of_one_task_are_each_part_of_their_gpu(site: Site, client: Client) -> None:
    client.submit(JOB, spec())
    slots = [MigSlot(gpu.id, MigInstance("3g.40gb", 4), MilliGpu(500)) for gpu in NODES[1].gpus[:2]]
    site.bind("job", TaskPlacement("worker", 0, NODES[1].name).on_slots(slots))
    held = client.nodes().items[1].held
    assert held == tuple(HeldDevice(slot.instance.id_on(slot.gpu), JOB, MilliGpu(500)) for slot in slots)


def test_gpus_that_are_being_partitioned_are_shown_and_counted(site: Site) -> None:
    gpu, late = NODES[0].gpus[0].id, NODES[1].gpus[0].id
    asked = Repartitioning(NODES[0].name, gpu, 1, NOW, NOW.after(1), (MigInstance("7g.80gb", 0),))
    overdue = msgspec.structs.replace(asked, node=NODES[1].name, device=late, deadline=NOW)
    in_flight = InFlight(counters=(Counter("mig-changes", "pool", NOW, 2),), repartitions=(asked, overdue))
    world = snapshot_of(NOW, NODES, (), in_flight)
    assert [view.changing for view in node_views(world, {}, {}, {})] == [(gpu,), (late,)]
    site.metrics.observe(world, site.plan(), {})
    (family,) = [
        family
        for family in text_string_to_metric_families(site.metrics.text().decode())
        if family.name == "quorate_mig_changes"
    ]
    seen = {(s.labels["pool"], s.labels["state"]): s.value for s in family.samples}
    assert seen == {("pool", "in-flight"): 1.0, ("pool", "overdue"): 1.0, ("pool", "in-the-last-hour"): 2.0}


def test_nodes_whose_nvlinks_contradict_their_island_say_so(site: Site, client: Client) -> None:
    clique = {node.name: NodeFacts(node.name, NOW, (GpuFacts(node.gpus[0].id, clique="c"),)) for node in NODES}
    assert [view.nvlink for view in client.nodes().items] == ["", ""]
    site.sighted = BackendReports({}, {}, facts=clique)
    assert [view.nvlink for view in client.nodes().items] == [
        "NVLink joins it to n2, its island to no other node",
        "NVLink joins it to n1, its island to no other node",
    ]


def test_rounds_the_snapshot_and_the_policy_come_whole(site: Site, client: Client) -> None:
    client.submit(JOB, spec())
    record = site.record_round()
    assert [(line.number, line.starts, line.duration_ms) for line in client.rounds().items] == [(1, 1, 14.5)]
    assert client.round(1) == msgspec.structs.replace(record, number=1)
    assert digest(client.snapshot()) == site.snapshot().digest
    view = client.policy()
    assert (view.revision, view.digest, view.policy) == (REVISION, POLICY.digest, POLICY)
    status = client.status()
    assert (status.last_applied_revision, status.epoch, status.conditions[0].type) == (REVISION, 1, "Ready")


def test_metrics_are_prometheus_text(site: Site, client: Client) -> None:
    for number in range(3):
        client.submit(JobName(f"job-{number}"), spec(4))
    site.record_round()
    families = {family.name: family for family in text_string_to_metric_families(client.metrics())}

    def samples(family: str, name: str) -> dict[tuple[str, ...], float]:
        return {tuple(s.labels.values()): s.value for s in families[family].samples if s.name == name}

    states = {"free": 8.0, "held": 0.0, "cordoned": 0.0, "unhealthy": 0.0}
    assert samples("quorate_gpus", "quorate_gpus") == {("H100", state): gpus for state, gpus in states.items()}
    assert samples("quorate_jobs_pending", "quorate_jobs_pending") == {("team", "outranked"): 2.0}
    assert samples("quorate_round_phase_seconds", "quorate_round_phase_seconds_sum")["solve",] == 0.0125
    assert samples("quorate_rounds", "quorate_rounds_total") == {("greedy",): 1.0}
    assert families["quorate_round_gap"].samples
    assert families["quorate_round_entitled_gpus_unproven"].samples


@pytest.mark.parametrize("name", ["none", "../jobs", "a%2Fb", "'; --"])
def test_an_unknown_job_is_named(client: Client, name: str) -> None:
    for call in (client.job, client.why, client.events, client.log, client.cancel):
        with pytest.raises(ApiError) as refused:
            call(name)
        assert refused.value.status == 404


def test_an_unknown_round_is_named(client: Client) -> None:
    with pytest.raises(ApiError, match="There is no round 7"):
        client.round(7)


def test_a_parameter_out_of_range_is_explained(server: ApiServer) -> None:
    response = WEB.get(f"{server.url}/v1/jobs?limit=0", headers={"Authorization": f"Bearer {TOKEN}"})
    assert response.status_code == 422
    assert response.json()["code"] == "invalid-parameter"
    assert "query.limit" in response.json()["detail"]


def test_errors_are_sorted_by_who_must_act(server: ApiServer) -> None:
    with Client(server.url, "wrong") as stranger, pytest.raises(NotAuthorisedError, match="QUORATE_TOKEN"):
        stranger.jobs()
    with Client("http://127.0.0.1:1", None) as lost, pytest.raises(ServerUnreachableError, match="quorate run"):
        lost.jobs()
    for nonsense in ("ftp://host", "no url", "http://", "http://[::1"):
        with pytest.raises(ServerUnreachableError, match="Write it like"):
            Client(nonsense, None)


def test_what_could_never_run_is_said_in_one_sentence_also_where_it_ends_in_a_question(site: Site) -> None:
    unknown = UnknownName("priority-class", ("trainin",), ("training",))
    services = replace(site.services(), admit=lambda _: (unknown,))
    with pytest.raises(RequestRefusedError, match=r"^train could never run: .*; did you mean training\?$"):
        require_admissible(services, [NewJob(JobName("train"), spec())])
