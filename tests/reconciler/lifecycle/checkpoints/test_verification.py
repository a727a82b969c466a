"""Damage of every kind is found, every time, and nothing else is."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.lifecycle.checkpoints.manifest import MANIFEST, StepFolder, read_manifest, seal, written
from reconciler.lifecycle.checkpoints.storage import PIECE_BYTES, Storage
from reconciler.lifecycle.checkpoints.verification import verification_steps, verify
from reconciler.model.checkpoint_findings import MissingShard, UnreadableManifest, WrongDigest, WrongHash, WrongSize
from solver.model.quantities import Memory
from tests.reconciler.lifecycle.checkpoints.storages import JOB, hand_in, memory_url, publish

STEP = StepFolder(1, 100)


def flip(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


def truncate(path: Path, chance: random.Random) -> None:
    path.write_bytes(path.read_bytes()[: chance.randrange(path.stat().st_size)])


def append(path: Path, chance: random.Random) -> None:
    path.write_bytes(path.read_bytes() + chance.randbytes(chance.randint(1, 9)))


def drop(path: Path, chance: random.Random) -> None:
    path.unlink()


def swap(path: Path, chance: random.Random) -> None:
    """With another shard of the same checkpoint."""
    other = chance.choice([shard for shard in shards_in(path.parents[1]) if shard.read_bytes() != path.read_bytes()])
    mine, theirs = path.read_bytes(), other.read_bytes()
    path.write_bytes(theirs)
    other.write_bytes(mine)


Damage = Callable[[Path, random.Random], None]
OF_ANY_FILE: list[Damage] = [flip, truncate, append, drop]
OF_SHARDS: list[Damage] = [*OF_ANY_FILE, swap]


def shards_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("worker.*/*"))


def intact(scratch: Path, chance: random.Random) -> tuple[Path, str]:
    """A checkpoint of two tasks with shards of random sizes, published; its folder and digest."""
    base = scratch / JOB
    for index in range(2):
        sizes = [chance.choice([1, 7, 1000, 70_000]) for _ in range(3)]
        contents = {f"weights-{n}": chance.randbytes(size) for n, size in enumerate(sizes)}
        hand_in(f"file://{base}", scratch, STEP.step, contents, index, 2)
    return base / str(STEP), publish(f"file://{base}", STEP.step).digest


@pytest.mark.parametrize("seed", range(60))
def test_every_corruption_is_found_and_none_is_made_up(tmp_path: Path, seed: int) -> None:
    """60 checkpoints with each kind of damage to a shard, and two to the manifest: 420 corruptions, 420 intact ones beside them."""
    chance = random.Random(seed)
    folder, digest = intact(tmp_path, chance)
    kept = tmp_path / "kept"
    shutil.copytree(folder, kept)
    damages = [(damage, chance.choice(shards_in(folder))) for damage in OF_SHARDS]
    damages += [(chance.choice(OF_ANY_FILE), folder / MANIFEST) for _ in range(2)]
    for damage, path in damages:
        storage = Storage(f"file://{folder.parent}")
        assert verify(storage, JOB, STEP, digest) == ()
        damage(path, chance)
        assert verify(storage, JOB, STEP, digest) != (), (damage, path)
        shutil.rmtree(folder)
        shutil.copytree(kept, folder)


def test_each_finding_says_which_shard_and_what(tmp_path: Path) -> None:
    url = f"file://{tmp_path / JOB}"
    hand_in(url, tmp_path, 100, {"a": b"aaaa", "b": b"bbbb", "c": b"cccc", "d": b"dddd"})
    digest = publish(url, 100).digest
    task = tmp_path / JOB / str(STEP) / "worker.0"
    (task / "a").unlink()
    (task / "b").write_bytes(b"bbb")
    (task / "c").write_bytes(b"cccC")
    found = verify(Storage(url), JOB, STEP, digest)
    assert found == (
        MissingShard("worker.0", "a"),
        WrongSize("worker.0", "b", Memory(4), Memory(3)),
        WrongHash("worker.0", "c"),
    )
    assert list(map(str, found)) == [
        "shard a of worker.0 is missing",
        "shard b of worker.0 has 3 bytes, not 4",
        "shard c of worker.0 has another SHA-256",
    ]


def test_a_manifest_made_to_fit_other_shards_is_not_the_one_that_was_published(tmp_path: Path) -> None:
    url = f"file://{tmp_path / JOB}"
    hand_in(url, tmp_path, 100, {"a": b"aaaa"})
    digest = publish(url, 100).digest
    forged = tmp_path / "forged" / JOB
    hand_in(f"file://{forged}", tmp_path, 100, {"a": b"AAAA"})
    publish(f"file://{forged}", 100)
    shutil.rmtree(tmp_path / JOB)
    shutil.copytree(forged, tmp_path / JOB)
    assert verify(Storage(url), JOB, STEP, digest) == (WrongDigest(),)


def test_a_manifest_that_only_reads_the_same_is_not_the_one_that_was_published(tmp_path: Path) -> None:
    url = f"file://{tmp_path / JOB}"
    hand_in(url, tmp_path, 100, {"a": b"aaaa"})
    digest = publish(url, 100).digest
    path = tmp_path / JOB / str(STEP) / MANIFEST
    path.write_bytes(path.read_bytes() + b"\n")
    assert verify(Storage(url), JOB, STEP, digest) == (WrongDigest(),)


def test_a_manifest_of_another_step_or_with_a_part_less_is_none(tmp_path: Path) -> None:
    url = f"file://{tmp_path / JOB}"
    for index in range(2):
        hand_in(url, tmp_path, 100, {"a": b"aaaa"}, index, 2)
    manifest = publish(url, 100)
    path = tmp_path / JOB / str(STEP) / MANIFEST
    for wrong in (
        {"step": 99},
        {"world_size": 1},
        {"parts": manifest.parts[:1]},
        {"parts": manifest.parts[::-1]},
        {"job": "other"},
    ):
        fields = {name: getattr(manifest, name) for name in manifest.__struct_fields__} | wrong
        path.write_bytes(written(seal(type(manifest)(**fields))))
        (finding,) = verify(Storage(url), JOB, STEP, manifest.digest)
        assert isinstance(finding, UnreadableManifest), wrong


def test_large_shards_are_read_in_pieces(tmp_path: Path) -> None:
    for url in (f"file://{tmp_path / JOB}", memory_url()):
        hand_in(url, tmp_path, 100, {"a": b"x" * (2 * PIECE_BYTES + 5)})
        digest = publish(url, 100).digest
        _, *pieces = verification_steps(Storage(url), JOB, STEP, digest)
        assert pieces == [PIECE_BYTES, PIECE_BYTES, 5]


@pytest.mark.parametrize("bits", range(40))
def test_damage_in_an_object_store_is_found_too(tmp_path: Path, bits: int) -> None:
    chance, url = random.Random(bits), memory_url()
    hand_in(url, tmp_path, 100, {"a": chance.randbytes(3_000), "b": chance.randbytes(50)})
    digest = publish(url, 100).digest
    storage = Storage(url)
    assert verify(storage, JOB, STEP, digest) == ()
    name = chance.choice([MANIFEST, "worker.0/a", "worker.0/b"])
    content = bytearray(storage.read(f"{STEP}/{name}") or b"")
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    storage.publish(f"{STEP}/{name}", bytes(content))
    assert verify(storage, JOB, STEP, digest) != ()


def test_what_was_written_reads_back_equal(tmp_path: Path) -> None:
    url = memory_url()
    hand_in(url, tmp_path, 100, {"a": b"aaaa"})
    manifest = publish(url, 100)
    assert read_manifest(written(manifest), JOB, STEP) == manifest == publish(url, 100)
