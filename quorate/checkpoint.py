"""For training scripts under Quorate: when to save, how to hand in what was saved, where to go on from.

Every task of a gang commits its own part of a checkpoint; the checkpoint counts once the parts of all tasks are there. All of
them must commit the same steps, so let rank 0 ask `should_checkpoint` and tell the others, with whatever they talk through.

Without Quorate (its variables are not in the environment) a script runs as it is: `should_checkpoint` is False, `latest` is None,
`commit` and `progress` do nothing. Folders are URLs: `file:` needs nothing else, others need fsspec and its driver.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, NamedTuple, Union

from quorate import folders

MANIFEST = "manifest.json"
"""Written by the control plane, once the parts of all tasks are there. What has one is never written again."""

Shards = Union[Mapping[str, Union[str, "os.PathLike[str]"]], Sequence[Union[str, "os.PathLike[str]"]]]  # noqa: UP007  (Python 3.9)

_ANSWERED = ("checkpoint", "time-limit")
"""The reasons of a request that a commit answers."""


class _Own:
    """What this process has done so far."""

    answered = 0
    saved_at_s = time.monotonic()


class StoredCheckpoint(NamedTuple):
    """A whole checkpoint to go on from. `shards`: by task (`worker.0`), then by name, the path within `url`."""

    step: int
    url: str
    shards: dict[str, dict[str, str]]

    def shard(self, name: str, task: str = "") -> str:
        """Where a shard is: a path for `file:` folders, else a URL. Of this task, else of the task that is named `GROUP.INDEX`.

        Raises KeyError, which names the shards that there are.
        """
        owner = task or _task()
        known = self.shards.get(owner, {})
        if name not in known:
            told = ", ".join(sorted(known)) or f"none; tasks: {', '.join(sorted(self.shards))}"
            raise KeyError(f"step {self.step} has no shard {name} of task {owner}. Its shards: {told}")
        where = folders.join(self.url, known[name])
        return folders.local_path(where) or where


Checkpoint = StoredCheckpoint
"""As training scripts know it."""


def should_checkpoint() -> bool:
    """Whether to save now: the control plane asks for it, or the job's interval is over since the last commit of this process."""
    if _open_request():
        return True
    interval_s = float(os.environ.get("QUORATE_CHECKPOINT_INTERVAL_S", "inf"))
    return bool(os.environ.get("QUORATE_CHECKPOINT_URL")) and time.monotonic() - _Own.saved_at_s >= interval_s


def folder(step: int) -> str:
    """Where this attempt's checkpoint of a step goes: shards that are written below `folder(step)/GROUP.INDEX/` are not copied.

    A path for `file:` folders, else a URL; "" without Quorate.
    """
    url = os.environ.get("QUORATE_CHECKPOINT_URL", "")
    return _shown(_step_url(url, step)) if url else ""


def commit(step: int, shards: Shards, url: str = "") -> None:
    """Hand in this task's part of the checkpoint of a step: the files are copied into its folder, unless they lie there already.

    `shards`: files by name, or files whose own names are unique. `url`: another folder than the job's. The part is
    written last and at once, so a task that dies on the way leaves none. A checkpoint that is whole is left as it is.
    Raises OSError where a file can't be read or the folder not be written; the step is then not saved.
    """
    base = url or os.environ.get("QUORATE_CHECKPOINT_URL", "")
    if not base:
        return
    # A step of which another task's part is missing answers nothing, so later ones go on answering.
    request = max(_open_request(), _Own.answered)
    target = _step_url(base, step)
    if not folders.exists(folders.join(target, MANIFEST)):
        placed = [_place(target, name, path) for name, path in sorted(_named(shards).items())]
        part = json.dumps(_part(step, placed, request), sort_keys=True).encode()
        folders.write(folders.join(target, f"parts/{_task()}.json"), part)
    _Own.answered = request
    _Own.saved_at_s = time.monotonic()


def latest() -> StoredCheckpoint | None:
    """The checkpoint to go on from; None: begin anew. Raises OSError where it can't be read, ValueError for what is no manifest."""
    url = os.environ.get("QUORATE_RESUME_URL", "")
    if not url:
        return None
    manifest = json.loads(folders.read(folders.join(url, MANIFEST)))
    shards = {
        f"{part['group']}.{part['index']}": {shard["name"]: shard["path"] for shard in part["shards"]}
        for part in manifest["parts"]
    }
    return StoredCheckpoint(int(manifest["step"]), url, shards)


def progress(step: int, rate: float = 0.0, flops: float = 0.0, tokens: float = 0.0) -> None:
    """Tell the control plane how far the work is: the last `step` done, and how many a second.

    `flops`: floating point operations a second that the model needs, and `tokens`: tokens a second, both of all GPUs of this task
    together. From flops follows the job's MFU. Of several processes of a task one tells, for all of them.
    """
    path = os.environ.get("QUORATE_PROGRESS_FILE", "")
    if path:
        more = {name: value for name, value in (("flops", flops), ("tokens", tokens)) if value}
        folders.write_file(path, json.dumps({"step": step, "rate": rate, **more}).encode())


def _open_request() -> int:
    """The number of the newest request to save that no commit of this process has answered; 0: there is none."""
    path = os.environ.get("QUORATE_REQUEST_FILE", "")
    if not path:
        return 0
    try:
        with open(path, encoding="utf-8") as file:
            request = json.load(file)
    except FileNotFoundError:
        return 0
    asked = int(request["number"]) if request.get("reason") in _ANSWERED else 0
    return asked if asked > _Own.answered else 0


def _step_url(base: str, step: int) -> str:
    # An attempt never mixes its parts with those of another one that came to the same step.
    return folders.join(base, f"step-{step:012d}-attempt-{int(os.environ.get('QUORATE_ATTEMPT', '1'))}")


def _task() -> str:
    return f"{os.environ.get('QUORATE_GROUP', 'worker')}.{os.environ.get('QUORATE_INDEX', '0')}"


def _named(shards: Shards) -> dict[str, str]:
    if isinstance(shards, Mapping):
        return {name: os.fspath(path) for name, path in shards.items()}
    named = {os.path.basename(os.fspath(path)): os.fspath(path) for path in shards}
    if len(named) != len(shards):
        raise ValueError("two shards have the same file name; give them names: commit(step, {name: path, ...})")
    return named


def _place(target: str, name: str, path: str) -> dict[str, Any]:
    """Bring one shard into the folder; what the part says of it. Its hash is of what was read here, not of what arrived."""
    if not name or name in (".", "..") or "/" in name or "\\" in name or not name.isprintable():
        raise ValueError(f"a shard can't have the name {name!r}: one without slashes and control characters")
    relative = f"{_task()}/{name}"
    size, sha256 = folders.put(path, folders.join(target, relative))
    return {"name": name, "path": relative, "size": size, "sha256": sha256}


def _membership() -> tuple[int, int]:
    """This task's rank and the size of the gang: as it is now, where somebody says so, else as it began."""
    began = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    try:
        with open(os.environ.get("QUORATE_GANG_FILE", ""), encoding="utf-8") as file:
            world = json.load(file)["world"]
    except FileNotFoundError:
        return began
    own = [member["rank"] for member in world if f"{member['group']}.{member['index']}" == _task()]
    return (own[0], len(world)) if own else began


def _part(step: int, shards: Sequence[dict[str, Any]], request: int) -> dict[str, Any]:
    rank, world_size = _membership()
    return {
        "job": os.environ.get("QUORATE_JOB", ""),
        "attempt": int(os.environ.get("QUORATE_ATTEMPT", "1")),
        "step": step,
        "group": os.environ.get("QUORATE_GROUP", "worker"),
        "index": int(os.environ.get("QUORATE_INDEX", "0")),
        "rank": rank,
        "worldSize": world_size,
        "answers": request,
        "shards": list(shards),
        "writtenAt": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),  # noqa: UP017  (datetime.UTC is of Python 3.11)
    }


def _shown(url: str) -> str:
    return folders.local_path(url) or url
