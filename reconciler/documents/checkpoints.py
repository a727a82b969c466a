"""What is wrong with CheckpointPolicy documents: URLs with credentials, local ones without a whole path, folders in each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from posixpath import normpath
from urllib.parse import urlsplit

from reconciler.documents.declarations import Declaration
from reconciler.model.checkpoint_policy import CheckpointPolicy
from reconciler.model.problem import Path, Problem

_AT: Path = ("spec", "storage")


def checkpoint_problems(documents: Sequence[Declaration[CheckpointPolicy]]) -> Iterator[Problem]:
    """What each has alone, and which of them would keep, and delete, each other's checkpoints."""
    seen: list[Declaration[CheckpointPolicy]] = []
    for document in documents:
        own = list(_url_problems(document))
        yield from own
        for other in seen if not own else ():
            if _overlap(document.value.storage, other.value.storage):
                message = f"its folder is, holds or lies in that of CheckpointPolicy {other.name}, at {other.origin}"
                yield document.problem(_AT, "shared-storage", message, "Give each a folder of its own.")
        seen += [] if own else [document]


def _url_problems(document: Declaration[CheckpointPolicy]) -> Iterator[Problem]:
    url = document.value.storage
    scheme, _, rest = url.partition("://")
    # Not shown again: a message goes to logs and pull requests.
    if "@" in rest.partition("/")[0] or "?" in rest or "#" in rest:
        message = "the URL has a user, a password or parameters in it"
        fix = "Name the folder alone; give credentials to the control plane and the jobs by their environment."
        yield document.problem(_AT, "credentials-in-url", message, fix)
    elif "::" in url or not scheme:
        yield document.problem(_AT, "malformed", "the URL is a chain of file systems", "Name one folder by one URL.")
    elif scheme in ("file", "local") and not url.startswith("file:///"):
        fix = "Write it like file:///mnt/checkpoints: three slashes."
        yield document.problem(_AT, "malformed", "a local folder is named by its whole path", fix)
    elif ".." in rest.split("/"):
        yield document.problem(_AT, "malformed", "the URL has .. in it", "Name the folder itself.")


def _overlap(one: str, other: str) -> bool:
    first, second = _normal(one), _normal(other)
    return first.startswith(second) or second.startswith(first)


def _normal(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{normpath(parts.path or '/').rstrip('/')}/"
