"""`quorate plan` on a real repository: what it says, in which order, and how it exits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reconciler.api.server import ApiServer
from reconciler.cli.inputs import read_policies
from reconciler.documents.schemas import validator_of
from solver.model.document import encode
from solver.model.quantities import Cpu, Instant, Memory
from solver.model.shape import Shape
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName, JobSpec, QueueName, TaskGroup
from solver.plan.plan import Bind
from solver.round.solve import solve
from tests.reconciler.analysis.reports.reviews import moved_quota
from tests.reconciler.cli.conftest import Now, Quorate
from tests.reconciler.gitops.source.origin import Origin

QUEUE_FILE = "policies/vision.yaml"
QUEUE = """\
apiVersion: quorate.dev/v1
kind: Queue
metadata: {name: vision}
spec:
  parent: research
  quota:
    # Of 32 in all.
    - {gpuType: H100, guaranteed: 8, max: 16}
"""
HEAD = "apiVersion: quorate.dev/v1\nkind: "
FILES = {
    QUEUE_FILE: QUEUE,
    "policies/research.yaml": HEAD + "Queue\nmetadata: {name: research}\nspec: {}\n",
    "policies/language.yaml": HEAD + "Queue\nmetadata: {name: language}\nspec: {parent: research}\n",
    "cluster-state/pool.yaml": HEAD
    + """NodePool
metadata: {name: pool}
spec: {gpuType: H100, gpusPerNode: 4, cpu: 32, memory: 64Gi, nodes: {prefix: n, count: 8}}
""",
}
EXPECTED = """\
main → more: 1 job starts now that would not
No job is worse off.

Documents
  queue research/vision: max 16 → 24 H100

Queues: entitlement and use
  Queue            GPU type  Guaranteed  Fair share       Max     Used
  research         H100              32     20 → 28  no limit  20 → 28
  research/vision  H100               8     16 → 24   16 → 24  16 → 24

Earliest start by queue
  Queue            Waiting  Start within the horizon         Start (p50)   Start (p90)
  research/vision        2                     0 → 1  not foreseen → now  not foreseen
  1 queue in which jobs wait as long as before.

Start now, and would not
  Job       Queue            GPUs   Would start
  finetune  research/vision     8  not foreseen

Fragmentation
  GPU type    Free  Free and of no use to known shapes
  H100      12 → 4                                   0

Would still wait
  Job    Queue            GPUs        Starts  Why
  sweep  research/vision     4  not foreseen  jobs that come before it take the room: eval, finetune; queue vision \
holds 24 of max 24 H100 (policies/vision.yaml:8); this job needs 4; would help: room beside the jobs that come before it; \
4 H100 less held in queue vision, or its max at 28

Start under both
  Job   Queue              GPUs
  eval  research/language     4

main ({base}): decided by greedy; all layers proven
more ({head}): decided by greedy; all layers proven
Snapshot of 1970-01-01 02:00:00 +02:00 (b3db15903a1a). 1 and 1 rounds were played ahead, until 1970-01-08 02:00:00 \
+02:00, with no new jobs; nothing says when 3 running jobs end.
"""


def test_the_page_of_a_quota_change(quorate: Quorate, repository: Origin, snapshot_file: Path, tmp_path: Path) -> None:
    _change(repository, "max: 16", "max: 24")
    arguments = ("--repo", str(repository.folder), "--base", "main", "--head", "more", "--snapshot", str(snapshot_file))
    pages = [tmp_path / name for name in ("first.html", "second.html")]
    said = [quorate("plan", *arguments, "--html", str(page)) for page in pages]
    assert said[0] == said[1] == quorate("plan", *arguments)
    text, again = (page.read_bytes() for page in pages)
    assert text == again
    for told in (
        "<bdi>queue research/vision</bdi>: <bdi>max 16 → 24 H100</bdi>",
        "16 → <b>24</b>",
        '<li class="changed">',
        "finetune",
    ):
        assert told in text.decode()
    unwritable = quorate("plan", *arguments, "--html", str(tmp_path / "none" / "page.html"))
    assert (unwritable.exit_code, unwritable.out, "page.html" in unwritable.err) == (1, "", True)


@pytest.fixture
def repository(tmp_path: Path) -> Origin:
    made = Origin(tmp_path / "policy")
    made.commit(FILES)
    return made


@pytest.fixture
def snapshot_file(repository: Origin, tmp_path: Path) -> Path:
    path = tmp_path / "snapshot.json"
    path.write_bytes(encode(_world(repository)))
    return path


def _world(repository: Origin) -> Snapshot:
    """16 GPUs of vision run; three jobs are pending."""
    compiled = read_policies(repository.folder)
    pretrain = _job("pretrain", "vision", 4, at=1)
    (bind,) = solve(snapshot_of(Instant(5), compiled.nodes, [pretrain]), compiled.policy, None).steps
    assert isinstance(bind, Bind)
    running = Job(
        pretrain.name, Instant(1), pretrain.spec, "ada", "running", 1, started_at=Instant(2), placement=bind.tasks
    )
    waiting = [_job("finetune", "vision", 2, at=2), _job("sweep", "vision", 1, at=3), _job("eval", "language", 1, at=4)]
    return snapshot_of(Instant(5), compiled.nodes, [running, *waiting])


def _job(name: str, queue: str, tasks: int, at: int) -> Job:
    shape = Shape(gpus=4, cpu=Cpu(1), memory=Memory(1))
    return Job(JobName(name), Instant(at), JobSpec(QueueName(queue), (TaskGroup("worker", tasks, shape),)), "ada")


def _change(repository: Origin, before: str, after: str) -> str:
    repository.git("switch", "--quiet", "--create", "more")
    text = (repository.folder / QUEUE_FILE).read_text()
    assert before in text
    return repository.commit({QUEUE_FILE: text.replace(before, after)})


def test_the_review_of_a_quota_change(
    quorate: Quorate, repository: Origin, snapshot_file: Path, tmp_path: Path, now: Now
) -> None:
    base, head = repository.git("rev-parse", "HEAD"), _change(repository, "max: 16", "max: 24")
    out = tmp_path / "plan.json"
    arguments = ("--repo", str(repository.folder), "--base", "main", "--head", "more", "--snapshot", str(snapshot_file))
    ran = quorate("plan", *arguments, "--out", str(out))
    assert ran[:2] == (0, EXPECTED.format(base=base[:12], head=head[:12]))
    assert quorate("plan", *arguments, "--all").out == ran.out
    saved = json.loads(out.read_text())
    assert list(validator_of("SavedPlan").iter_errors(saved)) == []
    assert (saved["envelope"]["accepts"]["evictedJobs"], saved["envelope"]["exact"]) == (0, False)
    written = saved["review"]
    assert written == json.loads(quorate("plan", *arguments, "-o", "json").out)
    assert list(validator_of("Review").iter_errors(written)) == []
    assert (written["apiVersion"], written["kind"], written["base"]["commit"]) == ("quorate.dev/v1", "Review", base)
    assert written["documents"] == [
        {
            "document": "Queue vision",
            "change": "changed",
            "fields": [{"field": "quota[H100].max", "before": "16", "after": "24", "origin": f"{QUEUE_FILE}:8"}],
            "origin": f"{QUEUE_FILE}:3",
        }
    ]
    assert quorate("plan", *arguments, "--detailed-exitcode").exit_code == 2


@pytest.mark.parametrize(
    ("output", "begins"),
    [
        ("text", "main → more-for-ranking: 1 guardrail broken"),
        ("markdown", "<!-- quorate:plan:v1 -->\n### `main` → `more-for-ranking`: 1 guardrail broken"),
        ("json", '{"ahead":'),
        ("github", "::error file=policies/scheduling.yaml,line=9"),
        ("sarif", '{\n  "$schema"'),
        ("junit", "<?xml"),
        ("gitlab", "[\n  {"),
    ],
)
def test_a_broken_guardrail_is_refused_in_every_format(
    quorate: Quorate,
    repository: Origin,
    snapshot_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    output: str,
    begins: str,
) -> None:
    monkeypatch.setattr("reconciler.cli.plan.review", lambda *_: moved_quota())
    arguments = ("--repo", str(repository.folder), "--snapshot", str(snapshot_file), "-o", output)
    ran = quorate("plan", *arguments)
    assert ran.exit_code == 5
    assert ran.out.startswith(begins)
    assert quorate("plan", *arguments, "--detailed-exitcode").exit_code == 5


def test_each_cluster_has_a_comment_of_its_own(
    quorate: Quorate, repository: Origin, snapshot_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reconciler.cli.plan.review", lambda *_: moved_quota())
    files = {f"cluster-state/{name}/pool.yaml": FILES["cluster-state/pool.yaml"] for name in ("eu-1", "us-1")}
    repository.git("rm", "--quiet", "cluster-state/pool.yaml")
    repository.commit(files)
    repository.git("branch", "--force", "base")
    arguments = ("--repo", str(repository.folder), "--base", "base", "--snapshot", str(snapshot_file))
    ran = quorate("plan", *arguments, "-o", "markdown", "--cluster", "eu-1")
    assert ran.out.startswith("<!-- quorate:plan:v1 eu-1 -->\n")


def test_what_the_base_did_since_the_head_left_it_is_no_change(
    quorate: Quorate, repository: Origin, snapshot_file: Path
) -> None:
    begun = repository.git("rev-parse", "HEAD")
    _change(repository, "    # Of 32 in all.\n", "")
    repository.git("switch", "--quiet", "main")
    text = (repository.folder / QUEUE_FILE).read_text()
    ahead = repository.commit({QUEUE_FILE: text.replace("max: 16", "max: 24")})
    asked = ("plan", "--repo", str(repository.folder), "--snapshot", str(snapshot_file))
    ran = quorate(*asked, "--base", "main", "--head", "more")
    assert (ran.exit_code, "The change has no effect" in ran.out) == (0, True)
    assert f"main has gone on since more left it: compared with {begun[:12]}, where it did" in ran.err
    back = quorate(*asked, "--base", "main", "--head", begun)
    assert ("has gone on" in back.err, ahead[:12] in back.out, "16" in back.out) == (False, True, True)


def test_a_comment_is_no_change(quorate: Quorate, repository: Origin, snapshot_file: Path) -> None:
    _change(repository, "    # Of 32 in all.\n", "")
    ran = quorate("plan", "--repo", str(repository.folder), "--snapshot", str(snapshot_file), "--detailed-exitcode")
    assert ran.exit_code == 0
    assert "The change has no effect" in ran.out


def test_a_queue_that_loses_a_limit_and_one_that_is_new(
    quorate: Quorate, repository: Origin, snapshot_file: Path
) -> None:
    _change(repository, ", max: 16", "")
    repository.commit({"policies/new.yaml": FILES["policies/language.yaml"].replace("language", "new")})
    ran = quorate("plan", "--repo", str(repository.folder), "--snapshot", str(snapshot_file))
    assert "  queue research/new is new: parent research\n" in ran.out
    assert "  queue research/vision: max H100 not set (was 16)\n" in ran.out


def test_nodes_that_go_are_told_by_their_pool(quorate: Quorate, repository: Origin, snapshot_file: Path) -> None:
    repository.git("switch", "--quiet", "--create", "less")
    pool = repository.folder / "cluster-state/pool.yaml"
    repository.commit({"cluster-state/pool.yaml": pool.read_text().replace("count: 8", "count: 7")})
    ran = quorate("plan", "--repo", str(repository.folder), "--snapshot", str(snapshot_file), "--detailed-exitcode")
    assert ran.exit_code == 2
    assert "  node pool pool: nodes 8 → 7\n" in ran.out


def test_a_node_that_is_cordoned_takes_no_work_under_the_plan_and_one_that_is_no_more_does(
    quorate: Quorate, repository: Origin, snapshot_file: Path
) -> None:
    repository.git("switch", "--quiet", "--create", "cordoned")
    pool, names = repository.folder / "cluster-state/pool.yaml", ", ".join(f"n{number}" for number in range(1, 9))
    repository.commit(
        {"cluster-state/pool.yaml": pool.read_text().replace("count: 8}", f"count: 8}}, cordoned: [{names}]")}
    )
    plan = ("plan", "--repo", str(repository.folder), "--snapshot", str(snapshot_file))
    cordoning = quorate(*plan).out
    assert f"  node pool pool: cordoned {names} (was not set)\n" in cordoning
    assert "No longer start now\n  Job   Queue              GPUs" in cordoning
    assert "Start now, and would not\n" in quorate(*plan, "--base", "cordoned", "--head", "main").out


def test_an_invalid_policy_is_refused_with_its_revision(
    quorate: Quorate, repository: Origin, snapshot_file: Path
) -> None:
    head = _change(repository, "guaranteed: 8", "guarenteed: 8")
    ran = quorate("plan", "--repo", str(repository.folder), "--snapshot", str(snapshot_file))
    assert (ran.exit_code, ran.out) == (3, "")
    assert f"error: --head HEAD ({head[:12]}): {QUEUE_FILE}:8:23: there is no field 'guarenteed'" in ran.err
    assert "Did you mean guaranteed?" in ran.err
    ran = quorate(
        "plan", "--repo", str(repository.folder), "--base", "more", "--head", "main", "--snapshot", str(snapshot_file)
    )
    assert ran.exit_code == 3
    assert "--base more" in ran.err


@pytest.mark.parametrize(
    ("arguments", "exit_code", "problem"),
    [
        (("--head", "nowhere"), 1, "error: --head: there is no revision 'nowhere'"),
        (("--base", "--help-me"), 1, "error: --base: there is no revision '--help-me'"),
        (("--snapshot", "/nowhere"), 64, "does not exist"),
        (("--server", "http://127.0.0.1:1"), 8, "http://127.0.0.1:1: no answer"),
    ],
)
def test_what_can_not_be_planned(
    quorate: Quorate, repository: Origin, arguments: tuple[str, ...], exit_code: int, problem: str
) -> None:
    ran = quorate("plan", "--repo", str(repository.folder), *arguments)
    assert (ran.exit_code, ran.out) == (exit_code, "")
    assert problem in ran.err


def test_a_revision_that_is_not_there_is_guessed(quorate: Quorate, repository: Origin) -> None:
    """In a clone of CI there may be no branch `trunk`, but that of the remote."""
    repository.git("update-ref", "refs/remotes/origin/trunk", "HEAD")
    for revision, meant in (("mian", "main"), ("trunk", "origin/trunk")):
        ran = quorate("plan", "--repo", str(repository.folder), "--base", revision)
        assert (ran.exit_code, ran.err.splitlines()[-1].strip()) == (1, f"Did you mean {meant}?")


def test_a_clone_of_ci_without_the_older_commits_says_so(
    quorate: Quorate, repository: Origin, snapshot_file: Path, tmp_path: Path
) -> None:
    _change(repository, "max: 16", "max: 24")
    repository.git("clone", "--quiet", "--depth=1", repository.folder.as_uri(), str(tmp_path / "shallow"))
    ran = quorate("plan", "--repo", str(tmp_path / "shallow"), "--base", "HEAD~1", "--snapshot", str(snapshot_file))
    assert ran.exit_code == 1
    assert "there is no revision 'HEAD~1'" in ran.err
    assert "`git fetch --unshallow` brings them." in ran.err

    repository.git("config", "uploadpack.allowFilter", "true")
    partial = ("--quiet", "--no-checkout", "--filter=blob:none", repository.folder.as_uri(), str(tmp_path / "partial"))
    repository.git("clone", *partial)
    ran = quorate("plan", "--repo", str(tmp_path / "partial"), "--base", "HEAD~1", "--snapshot", str(snapshot_file))
    assert ran.exit_code == 1
    assert "make one without --filter" in ran.err


def test_the_first_policy_is_planned_against_nothing_and_its_removal_is_refused(
    quorate: Quorate, snapshot_file: Path, tmp_path: Path
) -> None:
    made = Origin(tmp_path / "new")
    made.commit({"README.md": "soon"})
    made.commit(FILES)
    told = ("--repo", str(made.folder), "--snapshot", str(snapshot_file))
    ran = quorate("plan", *told, "--base", "HEAD~1", "--head", "HEAD")
    assert ran.exit_code == 0, ran.err
    assert "2 jobs become admissible and wait" in ran.out
    ran = quorate("plan", *told, "--base", "HEAD", "--head", "HEAD~1")
    assert (ran.exit_code, ran.out) == (3, "")
    assert "there is no document of a policy here" in ran.err


def test_a_folder_without_git_is_an_error(quorate: Quorate, tmp_path: Path) -> None:
    ran = quorate("plan", "--repo", str(tmp_path))
    assert ran.exit_code == 1
    assert "no Git repository" in ran.err


def test_a_snapshot_comes_from_one_place(quorate: Quorate, repository: Origin, snapshot_file: Path) -> None:
    ran = quorate("plan", "--snapshot", str(snapshot_file), "--server", "http://127.0.0.1:1")
    assert ran.exit_code == 64


@pytest.mark.parametrize(
    "arguments",
    [
        ("--exact",),
        ("--accept-evicted-jobs", "0"),
        ("--held", "--out", "plan.json"),
        ("--held", "--max-snapshot-age", "1m"),
    ],
)
def test_options_that_would_be_ignored_are_refused(quorate: Quorate, arguments: tuple[str, ...]) -> None:
    ran = quorate("plan", *arguments)
    assert (ran.exit_code, "--out" in ran.err) == (64, True)


def test_a_snapshot_that_is_too_old_is_refused(
    quorate: Quorate, repository: Origin, snapshot_file: Path, now: Now
) -> None:
    """The file is of 5 ms after the epoch; without a limit its age is told, and on stderr: the review says the same next year."""
    now.instant = Instant(20 * 60_000)
    arguments = ("plan", "--repo", str(repository.folder), "--head", "main", "--snapshot", str(snapshot_file))
    told = f"{snapshot_file}: the snapshot is 19m59s old, of 1970-01-01T00:00:00.005Z"
    ran = quorate(*arguments)
    assert (ran.exit_code, ran.err) == (0, f"note: {told}\n")
    assert quorate(*arguments, "--max-snapshot-age", "20m")[0::2] == (0, "")
    refused = quorate(*arguments, "--max-snapshot-age", "15m")
    assert (refused.exit_code, refused.out) == (4, "")
    assert refused.err == f"error: {told}; at most 15m is allowed\n  Export it again: quorate snapshot export.\n"


def test_a_server_that_decides_no_rounds_has_an_old_snapshot(
    quorate: Quorate, repository: Origin, at_server: ApiServer, now: Now
) -> None:
    now.advance(3600)
    arguments = ("plan", "--repo", str(repository.folder), "--head", "main", "--server", at_server.url)
    assert quorate(*arguments)[0::2] == (0, "")
    refused = quorate(*arguments, "--max-snapshot-age", "15m")
    assert (refused.exit_code, "the snapshot is 1h old" in refused.err) == (4, True)
