"""The files of Debian's packages, got by the hashes of a lock, without installing: no script of theirs runs."""

from __future__ import annotations

import hashlib
import io
import lzma
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple
from urllib.error import URLError
from urllib.request import urlopen

from hack.image_debs import Deb, NoMirrorError, mirror
from hack.supply_chain.problem import ProblemError

SNAPSHOTS_VARIABLE: Final = "QUORATE_DEBIAN_SNAPSHOTS"
"""The URL below which `debian/20261129T000000Z` and the like lie, for packages that mirrors no longer have."""
_MERGED: Final = ("bin", "lib", "lib64", "sbin")
"""Folders of the root that are links into /usr on Debian 12, whatever packages still say."""
_FIX: Final = f"Name Debian's snapshots in {SNAPSHOTS_VARIABLE}, or lock anew: `python -m hack.image_lock`."
_AR: Final = b"!<arch>\n"
_AR_HEADER_BYTES: Final = 60


class DebFile(NamedTuple):
    """`member` has the path below the root; `content` is b"" for what is no plain file."""

    member: tarfile.TarInfo
    content: bytes


def fetched(deb: Deb, snapshot: str, cache: Path | None = None) -> bytes:
    """The package: from the cache, the mirror, or the snapshot. Raises ProblemError where none has it, or has another."""
    folder = cache or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "quorate" / "debian"
    kept = folder / deb.sha256
    if kept.exists() and _is(known := kept.read_bytes(), deb):
        return known
    root, _, below = deb.path.partition("/")
    said = ""
    snapshots = os.environ.get(SNAPSHOTS_VARIABLE, "").rstrip("/")
    for url in (f"{_mirror()}/{deb.path}", *([f"{snapshots}/{root}/{snapshot}/{below}"] if snapshots else [])):
        try:
            with urlopen(url.replace("+", "%2b").replace("~", "%7e"), timeout=60) as answer:
                content: bytes = answer.read()
        except (URLError, TimeoutError) as error:
            said = said or str(error)
            continue
        if _is(content, deb):
            folder.mkdir(parents=True, exist_ok=True)
            (kept.with_suffix(f".{os.getpid()}")).write_bytes(content)
            kept.with_suffix(f".{os.getpid()}").replace(kept)
            return content
        said = "it has another hash than the lock"
    raise ProblemError(deb.path, f"it can't be had: {said}", _FIX)


def _mirror() -> str:
    try:
        return mirror()
    except NoMirrorError as error:
        raise ProblemError("the image", str(error), "On Debian apt has one.") from error


def unpacked(content: bytes, name: str) -> Iterator[DebFile]:
    """Every file, and what the package says of itself, where programs look for it that search for known holes."""
    parts = dict(_parts(content))
    for kind in ("control.tar", "data.tar"):
        (packed,) = [part for member, part in parts.items() if member.startswith(kind)]
        with tarfile.open(fileobj=io.BytesIO(lzma.decompress(packed))) as archive:
            for member in archive:
                opened = archive.extractfile(member) if member.isreg() else None
                file = DebFile(member, opened.read() if opened else b"")
                path = member.name.removeprefix("./").rstrip("/")
                if kind == "data.tar" and path not in ("", ".", *_MERGED):
                    yield file._replace(member=_moved(member, _merged(path)))
                elif path == "control":
                    yield file._replace(member=_moved(member, f"var/lib/dpkg/status.d/{name}"))


def _moved(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo:
    member.name = path
    if member.islnk():
        member.linkname = _merged(member.linkname.removeprefix("./"))
    return member


def _merged(path: str) -> str:
    return f"usr/{path}" if path.partition("/")[0] in _MERGED else path


def _parts(content: bytes) -> Iterator[tuple[str, bytes]]:
    """The members of an ar archive, ar(5)."""
    at = len(_AR)
    while at + _AR_HEADER_BYTES <= len(content):
        header = content[at : at + _AR_HEADER_BYTES].decode("ascii")
        size_bytes = int(header[48:58])
        at += _AR_HEADER_BYTES
        yield header[:16].strip().rstrip("/"), content[at : at + size_bytes]
        at += size_bytes + size_bytes % 2


def _is(content: bytes, deb: Deb) -> bool:
    return hashlib.sha256(content).hexdigest() == deb.sha256
