"""A policy as ConfigMaps: which there are to be for a revision, with which documents; pure.

Every document is one key, so that `kubectl get configmap` shows it as it is written. A ConfigMap has at most 1 MiB, so that there
are several parts, and an index that says of which revision they are. Parts are immutable and named by their content: a part with
the right name is right, whichever process wrote it before being killed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from reconciler.documents.clusters import files_for
from reconciler.documents.files import Files, is_document

MIRROR: Final = "quorate.dev/policy-mirror"
"""The label of all of them: `index` or `part`."""
REVISION: Final = "quorate.dev/policy-revision"
"""The label with the commit that they are of."""
INDEX: Final = "quorate-policy"
"""The name of the index; parts begin with it."""

PART_BYTES_MAX: Final = 900_000
"""Of keys and documents in one part. The server takes 1 MiB (1,048,576 bytes) of them."""
POLICY_BYTES_MAX: Final = 8 * 1024 * 1024
"""Of a policy that is copied: etcd, which has to hold it, is made for 2 to 8 GiB of everything."""
KEY_MAX: Final = 253

_PLAIN: Final = re.compile(rb"[A-Za-z0-9.-]")


class PolicyRevision(NamedTuple):
    """What is to be copied: the documents that one cluster reads (None: the only one) of a commit (its full id)."""

    commit: str
    cluster: str | None
    files: Files


class Copy(NamedTuple):
    """The objects, as they are to be written. The listing, an index, is written last: where it is, its parts are."""

    listing: dict[str, Any]
    parts: tuple[dict[str, Any], ...]


def copy_of(policy: PolicyRevision) -> Copy:
    """The ConfigMaps of a policy; of one that is too large the index alone, which says so."""
    documents = {
        path: content.decode("utf-8")
        for path, content in sorted(files_for(policy.files, policy.cluster).contents.items())
        if is_document(path)
    }
    size = sum(len(path) + len(text.encode()) for path, text in documents.items())
    fits = size <= POLICY_BYTES_MAX
    parts = tuple(_part(policy.commit, data) for data in _shared_out(documents)) if fits else ()
    message = (
        ""
        if fits
        else f"not copied: the documents have {size} bytes, at most {POLICY_BYTES_MAX} are. Read them in Git."
    )
    said = {
        "revision": policy.commit,
        "cluster": policy.cluster or "",
        "documents": str(len(documents)),
        "parts": " ".join(part["metadata"]["name"] for part in parts),
        "message": message,
    }
    return Copy(_config_map(INDEX, "index", policy.commit, said), parts)


def key_of(path: str) -> str:
    """The key of a file: `/` is written `__`, other characters that keys can't have as `_` and two hexadecimal digits a byte.

    A key longer than keys may be is `_x` and the SHA-256 of the path.
    """
    key = "".join(_written(byte) for byte in path.encode())
    return key if len(key) <= KEY_MAX - len("_p9") else f"_x{hashlib.sha256(path.encode()).hexdigest()}"


def _written(byte: int) -> str:
    if byte == ord("/"):
        return "__"
    return chr(byte) if _PLAIN.match(bytes([byte])) else f"_{byte:02x}"


def _shared_out(documents: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """The data of each part, in the order of the files' names."""
    data: dict[str, str] = {}
    size = 0
    for path, text in documents.items():
        for key, piece in _pieces(key_of(path), text):
            weight = len(key) + len(piece.encode())
            if data and size + weight > PART_BYTES_MAX:
                yield data
                data, size = {}, 0
            data[key] = piece
            size += weight
    if data:
        yield data


def _pieces(key: str, text: str) -> Iterator[tuple[str, str]]:
    """A document by its key, or, where it is larger than a part, its pieces in order: KEY_p1, KEY_p2 and so on."""
    room = PART_BYTES_MAX - KEY_MAX
    content = text.encode()
    if len(content) <= room:
        yield key, text
        return
    number, begin = 1, 0
    while begin < len(content):
        end = begin + room
        while end < len(content) and content[end] & 0xC0 == 0x80:  # not inside a character
            end -= 1
        yield f"{key}_p{number}", content[begin:end].decode("utf-8")
        number, begin = number + 1, end


def _part(commit: str, data: dict[str, str]) -> dict[str, Any]:
    content = hashlib.sha256(commit.encode())
    for key, text in data.items():
        content.update(f"\0{key}\0{text}".encode())
    part = _config_map(f"{INDEX}-{commit[:8]}-{content.hexdigest()[:12]}", "part", commit, data)
    return {**part, "immutable": True}


def _config_map(name: str, role: str, commit: str, data: dict[str, str]) -> dict[str, Any]:
    labels = {"app.kubernetes.io/name": "quorate", MIRROR: role, REVISION: commit}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}, "data": data}
