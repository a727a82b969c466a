"""The keeper's step: from parts that tasks have written to a checkpoint to go on from, and to none; killed anywhere, done twice."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from reconciler.lifecycle.checkpoints import storage as storage_module
from reconciler.lifecycle.checkpoints.keeper import CORRUPT, DELETED, FOLDERS_MAX, PUBLISHED, VERIFIED, Keeper
from reconciler.lifecycle.checkpoints.manifest import MANIFEST, StepFolder, step_folder
from reconciler.lifecycle.checkpoints.pending_verification import unread
from reconciler.lifecycle.checkpoints.resume_point import checkpoint_environment, resume_point
from reconciler.lifecycle.checkpoints.storage import (
    PART_BYTES_MAX,
    SMALL_BYTES_MAX,
    Storage,
    StorageUnusableError,
)
from reconciler.model.checkpoint_policy import CheckpointPolicy, CheckpointRetention
from reconciler.model.job_record import JobRecord
from reconciler.protocols.backend import Epoch, StaleEpochError
from reconciler.protocols.history import Event
from reconciler.protocols.ledger import Claim
from reconciler.store.store import SqlStore
from solver.model.quantities import Duration, Instant
from solver.model.workload import Checkpoint, JobName
from tests.contracts.stores import SPEC
from tests.fresh_store import fresh_store
from tests.reconciler.lifecycle.checkpoints.storages import JOB, hand_in

TASKS = 4
SAVES = msgspec.structs.replace(
    SPEC,
    checkpoint=Checkpoint(Duration(60_000)),
    task_groups=(msgspec.structs.replace(SPEC.task_groups[0], replicas=TASKS),),
)
TWO_DAYS = 2 * 86_400_000


class Killed(BaseException):
    """The control plane dies here."""


class Fragile(Storage):
    """A storage in which the control plane is killed before, or after, its nth change."""

    kill_at = 0
    after = False
    changes = 0

    def publish(self, path: str, content: bytes) -> None:
        self._change(lambda: Storage.publish(self, path, content))

    def delete(self, path: str) -> None:
        self._change(lambda: Storage.delete(self, path))

    def _change(self, deed: Callable[[], None]) -> None:
        Fragile.changes += 1
        if Fragile.changes == Fragile.kill_at and not Fragile.after:
            raise Killed
        deed()
        if Fragile.changes == Fragile.kill_at:
            raise Killed


class Site:
    """A job that saves its work, a registry and a folder."""

    def __init__(self, tmp_path: Path, store: SqlStore) -> None:
        self.scratch, self.store = tmp_path, store
        self.policy = CheckpointPolicy("default", f"file://{tmp_path}/storage")
        self.url = self.policy.folder_of(JOB)
        self.folder = tmp_path / "storage" / JOB
        self.now = Instant((tmp_path.stat().st_mtime_ns // 10**6) + 60_000)
        self.record = store.jobs.submit(JOB, SAVES, "ada", self.now, "key")
        self.keeper = Keeper(store.checkpoints, "control-plane")
        self.claims: tuple[Claim, ...] = ()

    @property
    def epoch(self) -> Epoch:
        return self.store.ledger.lead("only", self.now, Duration(10_000))

    def save(self, step: int, attempt: int = 1, index: int = 0, world_size: int = 1) -> None:
        hand_in(
            self.url,
            self.scratch,
            step,
            {"weights": b"w%d" % step * 100, "optimiser": b"o"},
            index,
            world_size,
            attempt,
        )

    def step(self) -> list[str]:
        kept = self.keeper.step(self.epoch, {"default": self.policy}, [self.record], self.claims, self.now)
        assert kept.problems == {}
        return [event.kind for event in kept.events]

    def unread(self, begun: Collection[JobName] = (JOB,)) -> dict[JobName, int]:
        return unread([self.record], begun, {"default": self.policy}, self.store.checkpoints)

    def states(self) -> list[tuple[int, str]]:
        return [(known.step, known.state) for known in self.store.checkpoints.of(JOB)]

    def folder_of(self, step: int, attempt: int = 1) -> Path:
        return self.folder / str(StepFolder(attempt, step))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    store = fresh_store(tmp_path / "quorate.db")
    yield Site(tmp_path, store)
    store.close()


def test_a_checkpoint_counts_once_all_its_parts_are_there(site: Site) -> None:
    site.save(100, index=0, world_size=2)
    assert site.step() == []
    site.save(100, index=1, world_size=2)
    assert site.step() == [PUBLISHED, VERIFIED]
    (known,) = site.store.checkpoints.of(JOB)
    assert (known.world_size, known.state, int(known.size)) == (2, "verified", 802)
    assert site.step() == []


def test_parts_of_two_attempts_never_make_one_checkpoint(site: Site) -> None:
    site.save(100, attempt=1, index=0, world_size=2)
    site.save(100, attempt=2, index=1, world_size=2)
    assert site.step() == []
    part = "parts/worker.1.json"
    shutil.copy(site.folder_of(100, 2) / part, site.folder_of(100) / part)
    assert site.step() == []


def test_an_elastic_gang_is_whole_at_one_of_its_sizes(site: Site) -> None:
    for index in range(3):
        site.save(100, index=index, world_size=4)
    assert site.step() == []
    for index in range(3):
        site.save(100, index=index, world_size=3)
    assert site.step() == [PUBLISHED, VERIFIED]
    assert site.store.checkpoints.of(JOB)[0].world_size == 3


def test_a_corrupt_checkpoint_is_passed_over_and_it_is_said_why(site: Site) -> None:
    for step in (300, 400):
        site.save(step)
    (site.folder_of(400) / "worker.0" / "weights").write_bytes(b"w401" * 100)
    assert site.step() == [PUBLISHED, PUBLISHED, CORRUPT, VERIFIED]
    resume = resume_point(site.store.checkpoints, JOB, site.policy)
    assert resume is not None
    assert (resume.step, resume.url) == (300, f"{site.url}/{StepFolder(1, 300)}")
    assert str(resume) == (
        "checkpoint of step 400 is corrupt: shard weights of worker.0 has another SHA-256; going on from step 300"
    )
    assert checkpoint_environment(JOB, Duration(90_500), site.policy, resume) == {
        "QUORATE_CHECKPOINT_URL": site.url,
        "QUORATE_CHECKPOINT_INTERVAL_S": "90.5",
        "QUORATE_RESUME_URL": resume.url,
        "QUORATE_RESUME_STEP": "300",
    }


def test_who_has_saved_nothing_begins_anew(site: Site) -> None:
    assert resume_point(site.store.checkpoints, JOB, site.policy) is None
    assert checkpoint_environment(JOB, Duration(1_000), None, None) == {}


def test_damage_after_verification_is_found_before_a_job_goes_on(site: Site) -> None:
    for step in (100, 200, 300):
        site.save(step)
    site.step()
    (site.folder_of(300) / "worker.0" / "optimiser").unlink()
    assert site.step() == [], "nobody reads again what nobody doubts"
    site.store.checkpoints.doubt(site.epoch, JOB)
    assert site.unread() == {JOB: 300}
    site.step()
    assert site.states() == [(300, "corrupt"), (200, "verified"), (100, "verified")]
    assert site.unread() == {}


@pytest.mark.parametrize("gone", ["storage", "the job's folder"])
def test_a_file_system_that_is_not_mounted_costs_nobody_his_work(site: Site, gone: str) -> None:
    site.save(100)
    assert site.step() == [PUBLISHED, VERIFIED]
    site.store.checkpoints.doubt(site.epoch, JOB)
    folder = site.folder.parent if gone == "storage" else site.folder
    folder.rename(site.scratch / "elsewhere")
    for _ in range(2):
        kept = site.keeper.step(site.epoch, {"default": site.policy}, [site.record], (), site.now)
        assert (kept.events, list(kept.problems)) == ((), ["default/pretrain"])
        assert "not mounted" in kept.problems["default/pretrain"]
        assert site.unread() == {JOB: 100}  # and so waits
    (site.scratch / "elsewhere").rename(folder)
    assert site.step() == [VERIFIED]
    assert site.unread() == {}


def test_what_somebody_deleted_is_corrupt_once_the_folder_is_there_again(site: Site) -> None:
    site.save(100)
    site.step()
    site.store.checkpoints.doubt(site.epoch, JOB)
    shutil.rmtree(site.folder)
    site.folder.mkdir()
    assert site.step() == [CORRUPT]


def test_what_a_job_waits_for_is_read_first_and_the_newest_of_it(site: Site) -> None:
    other = site.store.jobs.submit(JobName("other"), SAVES, "eve", site.now, "other")
    for step in (100, 200):
        site.save(step)
    site.keeper.bytes_per_step = 0
    site.step()
    storages = {"default"}
    assert [one.step for one in site.store.checkpoints.unjudged(storages)] == [100, 200]
    assert [one.step for one in site.store.checkpoints.unjudged(storages, [JOB])] == [200, 100]
    site.keeper.bytes_per_step = 1
    site.keeper.step(site.epoch, {"default": site.policy}, [site.record, other], [], site.now)
    for _ in range(8):
        if dict(site.states())[200] == "verified":
            break
        site.step()
    assert dict(site.states()) == {200: "verified", 100: "published"}


def test_nobody_waits_for_a_checkpoint_that_nobody_reads(site: Site) -> None:
    site.save(100)
    site.keeper.bytes_per_step = 0
    site.step()
    assert site.unread() == {JOB: 100}
    assert site.unread(begun=()) == {}, "it has never held anything"
    trusting = msgspec.structs.replace(site.policy, verify=False)
    assert unread([site.record], [JOB], {"default": trusting}, site.store.checkpoints) == {}
    assert unread([site.record], [JOB], {}, site.store.checkpoints) == {}, "the policy was withdrawn"


def test_an_unverified_checkpoint_is_named_as_passed_over(site: Site) -> None:
    site.save(100)
    site.step()
    site.keeper.bytes_per_step = 0
    site.save(200)
    site.step()
    resume = resume_point(site.store.checkpoints, JOB, site.policy)
    assert str(resume) == "checkpoint of step 200 is not verified yet; going on from step 100"
    trusting = msgspec.structs.replace(site.policy, verify=False)
    assert str(resume_point(site.store.checkpoints, JOB, trusting)) == "going on from step 200"


def test_each_step_reads_its_share_and_the_next_reads_on(site: Site) -> None:
    for step in (100, 200):
        site.save(step)
    site.keeper.bytes_per_step = 1
    steps = [site.step() for _ in range(8)]
    assert steps[0] == [PUBLISHED, PUBLISHED]
    assert [kind for step in steps[1:] for kind in step] == [VERIFIED, VERIFIED]
    assert sum(bool(step) for step in steps[1:]) == 2


def test_what_retention_lets_go_is_deleted_and_what_runs_keeps_its_origin(site: Site) -> None:
    site.policy = msgspec.structs.replace(site.policy, retention=CheckpointRetention(keep=1))
    site.save(100)
    site.step()
    site.store.checkpoints.resume(site.epoch, site.store.checkpoints.of(JOB)[0].key, 2)
    site.claims = (Claim(JOB, 2, (), site.now),)
    for step in (200, 300):
        site.save(step, attempt=2)
    site.step()
    assert DELETED in site.step()
    assert site.states() == [(300, "verified"), (200, "deleted"), (100, "verified")]
    assert (site.folder_of(200, 2).exists(), site.folder_of(100).exists()) == (False, True)
    site.claims = ()
    assert site.step() == [DELETED]
    assert not site.folder_of(100).exists()


def test_what_is_never_whole_goes_after_a_day(site: Site) -> None:
    site.save(100, index=0, world_size=2)
    site.step()
    assert site.folder_of(100).exists()
    (site.folder / "notes").mkdir()
    site.now = site.now.after(TWO_DAYS * 2 // 5)
    site.step()
    assert site.folder_of(100).exists()
    site.now = site.now.after(TWO_DAYS)
    site.step()
    assert sorted(path.name for path in site.folder.iterdir()) == ["notes"]


def test_one_checkpoint_has_one_name(site: Site) -> None:
    """What is called otherwise, by zeros before its numbers, is none."""
    site.save(100)
    shutil.copytree(site.folder_of(100), site.folder / "step-0000000000100-attempt-1")
    shutil.copytree(site.folder_of(100), site.folder / "step-000000000100-attempt-01")
    assert site.step() == [PUBLISHED, VERIFIED]
    assert [step_folder(path.name) for path in sorted(site.folder.iterdir())] == [None, None, StepFolder(1, 100)]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("kill_at", range(1, 8))
def test_killed_at_any_change_it_comes_to_the_same(site: Site, kill_at: int, after: bool) -> None:
    """Seven changes: three manifests, then the manifest and the folder of each of the two that go."""
    site.policy = msgspec.structs.replace(site.policy, retention=CheckpointRetention(keep=1))
    for step in (100, 200, 300):
        site.save(step)
    Fragile.changes, Fragile.kill_at, Fragile.after = 0, kill_at, after
    killed = 0
    for _ in range(6):
        site.keeper = Keeper(site.store.checkpoints, "control-plane", open_storage=Fragile)
        try:
            site.step()
        except Killed:
            killed += 1
    assert killed == 1
    assert site.states() == [(300, "verified"), (200, "deleted"), (100, "deleted")]
    assert [path.name for path in site.folder.iterdir()] == [str(StepFolder(1, 300))]


@pytest.mark.parametrize("lost", ["part", "shard", "torn-part", "torn-shard"])
def test_a_task_that_dies_while_it_writes_leaves_nothing_that_verifies(site: Site, lost: str) -> None:
    """A part is the last thing that is written; should it be there without its shards, reading them shows it."""
    for index in range(2):
        site.save(100, index=index, world_size=2)
    folder = site.folder_of(100)
    path = folder / ("parts/worker.1.json" if "part" in lost else "worker.1/weights")
    if lost.startswith("torn"):
        path.write_bytes(path.read_bytes()[:50])
    else:
        path.unlink()
    site.step()
    assert site.states() == ([] if "part" in lost else [(100, "corrupt")])
    assert resume_point(site.store.checkpoints, JOB, site.policy) is None


def test_a_torn_manifest_that_nobody_recorded_is_made_anew(site: Site) -> None:
    site.save(100)
    (site.folder_of(100) / MANIFEST).write_bytes(b'{"attempt":1,"dig')
    assert site.step() == [PUBLISHED, VERIFIED]


def test_two_control_planes_at_once_come_to_the_same(site: Site) -> None:
    for step in range(10, 20):
        for index in range(2):
            site.save(step, index=index, world_size=2)
    keepers = [Keeper(site.store.checkpoints, f"plane-{number}") for number in range(2)]
    epoch = site.epoch

    def work(keeper: Keeper) -> tuple[Event, ...]:
        policies = {"default": msgspec.structs.replace(site.policy, retention=CheckpointRetention(keep=99))}
        return keeper.step(epoch, policies, [site.record], (), site.now).events

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, keepers))
    assert site.states() == [(step, "verified") for step in range(19, 9, -1)]


def test_a_registry_that_was_lost_is_read_from_the_storage(site: Site, tmp_path: Path) -> None:
    site.save(100)
    site.step()
    known = site.store.checkpoints.of(JOB)
    (tmp_path / "other").mkdir()
    other = fresh_store(tmp_path / "other" / "quorate.db")
    other.jobs.submit(JOB, SAVES, "ada", site.now, "key")
    epoch = other.ledger.lead("only", site.now, Duration(10_000))
    Keeper(other.checkpoints, "new").step(epoch, {"default": site.policy}, [site.record], (), site.now)
    assert other.checkpoints.of(JOB) == known
    other.close()


def test_who_leads_no_more_deletes_nothing(site: Site) -> None:
    site.policy = msgspec.structs.replace(site.policy, retention=CheckpointRetention(keep=1))
    site.save(100)
    site.step()
    site.save(200)
    old = site.epoch
    site.step()  # the next one would delete step 100
    site.store.ledger.resign(old)
    site.store.ledger.lead("other", site.now, Duration(10_000))
    before = sorted(path.name for path in site.folder.iterdir())
    with pytest.raises(StaleEpochError):
        site.keeper.step(old, {"default": site.policy}, [site.record], (), site.now)
    assert sorted(path.name for path in site.folder.iterdir()) == before


def test_a_storage_that_fails_stops_no_other(site: Site) -> None:
    def failing(url: str) -> Storage:
        if "broken" in url:
            raise StorageUnusableError(url, OSError("no route to it"))
        return Storage(url)

    site.keeper = Keeper(site.store.checkpoints, "control-plane", open_storage=failing)
    broken = CheckpointPolicy("broken", "s3://broken")
    spec = msgspec.structs.replace(SPEC, checkpoint=Checkpoint(Duration(60_000), storage="broken"))
    other = JobRecord(JOB, spec, "ada", site.now)
    site.save(100)
    policies = {"default": site.policy, "broken": broken}
    kept = site.keeper.step(site.epoch, policies, [other, site.record], (), site.now)
    assert [event.kind for event in kept.events] == [PUBLISHED, VERIFIED]
    assert list(kept.problems) == ["broken"]
    assert "no route to it" in kept.problems["broken"]
    assert "credentials" in kept.problems["broken"]


def test_what_one_job_has_made_unreadable_stops_no_other(site: Site) -> None:
    def failing(url: str) -> Storage:
        if url.endswith("/closed"):
            raise StorageUnusableError(url, PermissionError("closed"))
        return Storage(url)

    site.keeper = Keeper(site.store.checkpoints, "control-plane", open_storage=failing)
    closed = JobRecord(JobName("closed"), SAVES, "ada", site.now)
    site.save(100)
    kept = site.keeper.step(site.epoch, {"default": site.policy}, [closed, site.record], (), site.now)
    assert [event.kind for event in kept.events] == [PUBLISHED, VERIFIED]
    assert list(kept.problems) == ["default/closed"]


@pytest.mark.parametrize("linked", ["job", "step"])
def test_links_to_what_others_have_saved_are_not_followed(site: Site, linked: str) -> None:
    """Else a job could have the control plane delete, as abandoned, what is not its own."""
    site.save(100)
    site.step()
    thief = site.store.jobs.submit(JobName("thief"), SAVES, "eve", site.now, "other")
    if linked == "job":
        (site.folder.parent / "thief").symlink_to(site.folder)
    else:
        (site.folder.parent / "thief").mkdir()
        (site.folder.parent / "thief" / str(StepFolder(1, 100))).symlink_to(site.folder_of(100))
    site.now = site.now.after(TWO_DAYS)
    site.keeper.step(site.epoch, {"default": site.policy}, [thief], (), site.now)
    site.store.checkpoints.doubt(site.epoch, JOB)
    site.step()
    assert site.states() == [(100, "verified")]
    assert site.store.checkpoints.of(thief.name) == ()


def test_events_say_what_and_where(site: Site) -> None:
    site.save(100)
    kept = site.keeper.step(site.epoch, {"default": site.policy}, [site.record], (), site.now)
    assert [(event.subject, event.actor, event.cause) for event in kept.events] == [
        (
            JOB,
            "control-plane",
            f"step 100 of attempt 1: saved by 1 task, 401 bytes, in {site.url}/{StepFolder(1, 100)}",
        ),
        (JOB, "control-plane", "step 100 of attempt 1: every shard is as it was written"),
    ]


def test_a_part_of_somebody_else_counts_for_nothing(site: Site) -> None:
    site.save(100)
    (site.folder_of(100) / "parts" / "worker.0.json").rename(site.folder_of(100) / "parts" / "worker.1.json")
    assert site.step() == []
    site.save(200)
    shutil.copytree(site.folder_of(200), site.folder_of(300))
    assert site.step() == [PUBLISHED, VERIFIED]
    assert site.states() == [(200, "verified")]


def test_a_part_that_names_files_elsewhere_counts_for_nothing(site: Site) -> None:
    site.save(100)
    path = site.folder_of(100) / "parts" / "worker.0.json"
    path.write_bytes(path.read_bytes().replace(b"worker.0/weights", b"worker.0/../../w"))
    assert site.step() == []


def test_a_part_that_is_a_pipe_is_told_of_and_stops_nothing_else(site: Site) -> None:
    site.save(100)
    site.save(200)
    part = site.folder_of(100) / "parts" / "worker.0.json"
    part.unlink()
    os.mkfifo(part)
    kept = site.keeper.step(site.epoch, {"default": site.policy}, [site.record], (), site.now)
    assert [(event.kind, event.cause[:8]) for event in kept.events] == [(PUBLISHED, "step 200"), (VERIFIED, "step 200")]
    assert list(kept.problems) == [f"default/{JOB}"]
    assert f"{StepFolder(1, 100)}/parts/worker.0.json is a named pipe" in kept.problems[f"default/{JOB}"]
    site.now = site.now.after(TWO_DAYS)
    site.keeper.step(site.epoch, {"default": site.policy}, [site.record], (), site.now)
    assert not site.folder_of(100).exists()


def test_a_checkpoint_of_endless_size_keeps_no_other_from_being_read(site: Site) -> None:
    """A sparse file takes no room, and may be said to have more bytes than are ever read."""
    endless = site.store.jobs.submit(JobName("endless"), SAVES, "eve", site.now, "other")
    url = site.policy.folder_of(endless.name)
    hand_in(url, site.scratch, 100, {"weights": b"w"})
    folder = site.folder.parent / "endless" / str(StepFolder(1, 100))
    (folder / "worker.0" / "weights").write_bytes(b"")
    os.truncate(folder / "worker.0" / "weights", 2**40)
    part = folder / "parts" / "worker.0.json"
    told = json.loads(part.read_bytes()) | {"job": "endless"}
    told["shards"][0]["size"] = 2**40
    part.write_text(json.dumps(told))
    site.keeper.bytes_per_step = 8 * 2**20
    policies = {"default": site.policy}
    site.keeper.step(site.epoch, policies, [endless], (), site.now)
    site.save(100)
    both = [endless, site.record]
    events = [event for _ in range(3) for event in site.keeper.step(site.epoch, policies, both, (), site.now).events]
    assert [(event.subject, event.kind) for event in events] == [(JOB, PUBLISHED), (JOB, VERIFIED)]
    assert [one.state for one in site.store.checkpoints.of(endless.name)] == ["published"]


def test_parts_of_what_is_not_whole_are_read_once_until_one_changes(site: Site) -> None:
    reads: list[str] = []

    class Counted(Storage):
        def read(self, path: str, bytes_max: int = SMALL_BYTES_MAX) -> bytes | None:
            reads.append(path)
            return super().read(path, bytes_max)

    site.keeper.open_storage = Counted
    site.save(100, index=0, world_size=3)
    site.save(100, index=1, world_size=3)
    assert (site.step(), len([path for path in reads if "/parts/" in path])) == ([], 2)
    reads.clear()
    assert (site.step(), reads) == ([], [])
    site.save(100, index=0, world_size=2)  # the same name, and another part
    site.save(100, index=1, world_size=2)
    assert site.step() == [PUBLISHED, VERIFIED]


def test_a_part_that_is_too_large_is_not_read(site: Site) -> None:
    site.save(100, index=0, world_size=2)
    site.save(100, index=1, world_size=2)
    part = site.folder_of(100) / "parts" / "worker.1.json"
    content = part.read_bytes()
    part.write_bytes(content + b" " * PART_BYTES_MAX)
    assert site.step() == []
    part.write_bytes(content + b" " * (PART_BYTES_MAX - len(content)))
    assert site.step() == [PUBLISHED, VERIFIED]


def test_parts_that_are_too_large_together_are_told_of_and_not_read(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.save(100, index=0, world_size=2)
    site.save(100, index=1, world_size=2)
    larger = max(path.stat().st_size for path in (site.folder_of(100) / "parts").iterdir())
    monkeypatch.setattr("reconciler.lifecycle.checkpoints.storage.SMALL_BYTES_EACH_LOOK", larger)
    kept = site.keeper.step(site.epoch, {"default": site.policy}, [site.record], (), site.now)
    assert f"its parts have more than {larger} bytes" in kept.problems[f"default/{JOB}"]
    assert site.states() == []


def test_more_parts_than_the_job_has_tasks_are_told_of_and_not_read(site: Site) -> None:
    site.save(100)
    parts = site.folder_of(100) / "parts"
    for index in range(TASKS):
        shutil.copy(parts / "worker.0.json", parts / f"copy.{index}.json")
    site.save(200)
    for _ in range(2):
        kept = site.keeper.step(site.epoch, {"default": site.policy}, [site.record], (), site.now)
        assert "has 5 parts, and the job 4 tasks" in kept.problems[f"default/{JOB}"]
    assert site.states() == [(200, "verified")]


def test_of_very_many_folders_the_newest_are_looked_at(site: Site) -> None:
    for step in range(1, FOLDERS_MAX + 1):
        site.folder_of(step).mkdir(parents=True)
    site.save(10_000)
    kept = site.keeper.step(site.epoch, {"default": site.policy}, [site.record], (), site.now)
    assert f"of {FOLDERS_MAX + 1} checkpoints that are not whole" in kept.problems[f"default/{JOB}"]
    assert site.states() == [(10_000, "verified")]
    site.now = site.now.after(TWO_DAYS)
    assert (site.step(), site.step()) == ([], [])
    assert [folder.name for folder in site.folder.iterdir()] == [str(StepFolder(1, 10_000))]


def test_what_one_look_has_no_room_for_the_next_one_reads(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.save(100, world_size=2)
    site.save(200)
    size = (site.folder_of(200) / "parts" / "worker.0.json").stat().st_size
    monkeypatch.setattr(storage_module, "SMALL_BYTES_EACH_LOOK", size * 3 // 2)
    kept = site.keeper.step(site.epoch, {"default": site.policy}, [site.record], (), site.now)
    assert "its parts have more than" in kept.problems[f"default/{JOB}"]
    assert site.step() == [PUBLISHED, VERIFIED]
    assert site.states() == [(200, "verified")]
