"""Repositories that try to read the host's files, run its commands, or exhaust it: each a good one with one thing wrong in it."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import msgspec

from reconciler.documents.repository import read_repository
from reconciler.gitops.source.errors import GitSourceError
from reconciler.gitops.source.mirror import GitMirror
from reconciler.gitops.source.tree import read_revision

CANARY = "canary-7f1b"
QUEUE = b"apiVersion: quorate.dev/v1\nkind: Queue\nmetadata: {name: team}\nspec: {weight: 1}\n"
_LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 7\n"


class Entry(NamedTuple):
    """One line of a tree, as raw as Git stores it."""

    mode: str
    name: bytes
    object_id: str


class Workshop:
    """A repository written with Git's plumbing, so that nothing of what is wrong in it is refused on the way."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.secret, self.ran = folder, folder.parent / "secret.yaml", folder.parent / "ran"
        self.secret.write_text(f"name: {CANARY}\n")
        folder.mkdir()
        self._git("init", "--quiet", "--bare", "--initial-branch=main")

    def blob(self, content: bytes) -> str:
        """A file's content."""
        return self._git("hash-object", "-w", "--stdin", given=content)

    def tree(self, entries: Sequence[Entry]) -> str:
        """A folder, with any names and modes."""
        raw = b"".join(
            entry.mode.encode() + b" " + entry.name + b"\0" + bytes.fromhex(entry.object_id) for entry in entries
        )
        return self._git("hash-object", "-w", "--literally", "-t", "tree", "--stdin", given=raw)

    def commit(self, policies: Sequence[Entry], beside: Sequence[Entry] = ()) -> None:
        """The only commit of main: a good queue and `policies` in its folder, `beside` at the top."""
        good = Entry("100644", b"team.yaml", self.blob(QUEUE))
        folder = self.tree(sorted([good, *policies], key=lambda entry: entry.name))
        self.commit_top([Entry("40000", b"policies", folder), *beside])

    def commit_top(self, entries: Sequence[Entry]) -> None:
        """The same from what lies at the top."""
        top = self.tree(sorted(entries, key=lambda entry: entry.name))
        commit = self._git("commit-tree", top, "-m", "hostile")
        self._git("update-ref", "refs/heads/main", commit)

    def configure(self, key: str, value: str) -> None:
        """In the repository's own configuration."""
        self._git("config", key, value)

    def hook(self, name: str) -> None:
        """A hook that would be seen to have run."""
        path = self.folder / "hooks" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\ntouch {self.ran}\n")
        path.chmod(0o755)

    def _git(self, *arguments: str, given: bytes = b"") -> str:
        who = {f"GIT_{role}_{what}": "m@example.com" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        environment = {**os.environ, **who, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
        done = subprocess.run(
            ["git", *arguments], cwd=self.folder, env=environment, input=given, check=True, capture_output=True
        )
        return done.stdout.decode().strip()


def _link(target: Callable[[Workshop], str]) -> Callable[[Workshop], None]:
    return lambda shop: shop.commit([Entry("120000", b"x.yaml", shop.blob(target(shop).encode()))])


def _file(name: bytes, content: bytes = QUEUE, mode: str = "100644") -> Callable[[Workshop], None]:
    return lambda shop: shop.commit([Entry(mode, name, shop.blob(content))])


def _beside(name: bytes, content: Callable[[Workshop], str]) -> Callable[[Workshop], None]:
    return lambda shop: shop.commit([], [Entry("100644", name, shop.blob(content(shop).encode()))])


def _configured(key: str) -> Callable[[Workshop], None]:
    def make(shop: Workshop) -> None:
        shop.commit([])
        shop.configure(key, f"touch {shop.ran}")

    return make


def _hooked(name: str) -> Callable[[Workshop], None]:
    def make(shop: Workshop) -> None:
        shop.commit([])
        shop.hook(name)

    return make


def _submodule(shop: Workshop) -> None:
    modules = f'[submodule "x"]\n\tpath = policies/x\n\turl = ext::sh -c "touch {shop.ran}"\n'
    shop.commit([Entry("160000", b"x", "1" * 40)], [Entry("100644", b".gitmodules", shop.blob(modules.encode()))])


def _folder_is_link(shop: Workshop) -> None:
    shop.commit_top([Entry("120000", b"policies", shop.blob(str(shop.secret.parent).encode()))])


def _inside(name: bytes) -> Callable[[Workshop], None]:
    """A folder of that name with a file of Git's configuration in it."""

    def make(shop: Workshop) -> None:
        config = shop.blob(f"[core]\n\tfsmonitor = touch {shop.ran}\n".encode())
        shop.commit([Entry("40000", name, shop.tree([Entry("100644", b"config", config)]))])

    return make


def _nested(levels: int, wide: int) -> Callable[[Workshop], None]:
    """The same folder `wide` times in itself, `levels` deep: a few objects, and wide ** levels files."""

    def make(shop: Workshop) -> None:
        names = [f"{number:04d}".encode() for number in range(wide)]
        tree = shop.tree([Entry("100644", name + b".yaml", shop.blob(QUEUE)) for name in names])
        for _ in range(levels - 1):
            tree = shop.tree([Entry("40000", name, tree) for name in names])
        shop.commit([Entry("40000", b"bomb", tree)])

    return make


def _missing(shop: Workshop) -> None:
    shop.commit([Entry("100644", b"gone.yaml", "2" * 40)])


def _large(shop: Workshop) -> None:
    shop.commit([Entry("100644", b"large.yaml", shop.blob(bytes(300_000_000)))])


def _attributes(shop: Workshop) -> None:
    shop.configure("filter.run.smudge", f"touch {shop.ran}")
    shop.configure("filter.run.process", f"touch {shop.ran}")
    shop.configure("diff.run.textconv", f"touch {shop.ran}")
    _beside(b".gitattributes", lambda _: "* filter=run diff=run export-subst ident\n")(shop)


MADE: dict[str, Callable[[Workshop], None]] = {
    "link to a file": _link(lambda shop: str(shop.secret)),
    "link upwards": _link(lambda _: "../../secret.yaml"),
    "link to a device": _link(lambda _: "/dev/zero"),
    "link to itself": _link(lambda _: "x.yaml"),
    "folder that is a link": _folder_is_link,
    "submodule that runs a command": _submodule,
    "filters": _attributes,
    "LFS pointer": _file(b"x.yaml", _LFS),
    "LFS configuration": _beside(b".lfsconfig", lambda shop: f"[lfs]\n\turl = ext::touch {shop.ran}\n"),
    "mailmap that is a link": lambda shop: shop.commit(
        [], [Entry("120000", b".mailmap", shop.blob(str(shop.secret).encode()))]
    ),
    "hook post-checkout": _hooked("post-checkout"),
    "hook reference-transaction": _hooked("reference-transaction"),
    "hook post-update": _hooked("post-update"),
    "pack objects hook": _configured("uploadpack.packObjectsHook"),
    "file system monitor": _configured("core.fsmonitor"),
    "ssh command": _configured("core.sshCommand"),
    "pager": _configured("core.pager"),
    "editor": _configured("core.editor"),
    "credential helper": _configured("credential.helper"),
    "alternate refs command": _configured("core.alternateRefsCommand"),
    ".git in the tree": _inside(b".git"),
    ".GIT in the tree": _inside(b".GIT"),
    "short name of .git": _inside(b"git~1"),
    ".git with a character that is ignored": _inside(".g\u200cit".encode()),
    "folder named ..": _inside(b".."),
    "folder named .": _inside(b"."),
    "name with a slash": _file(b"../../escaped.yaml"),
    "absolute name": _file(b"/etc/x.yaml"),
    "name that is an option": _file(b"--output=ran.yaml"),
    "name with a line end": _file(b"a\nb.yaml"),
    "name that steers a terminal": _file(b"\x1b[2J\x1b]0;owned\x07.yaml"),
    "name that is not UTF-8": _file(b"\xff\xfe.yaml"),
    "name from right to left": _file("\u202elmay.yaml".encode()),
    "name of a kilobyte": _file(b"x" * 1000 + b".yaml"),
    "same name twice": lambda shop: shop.commit(
        [Entry("100644", b"x.yaml", shop.blob(QUEUE)), Entry("100644", b"x.yaml", shop.blob(b"a: 1\n"))]
    ),
    "mode that is none": _file(b"x.yaml", mode="100777"),
    "setuid file": _file(b"x.yaml", mode="104755"),
    "device": _file(b"x.yaml", mode="60000"),
    "blob that is called a folder": lambda shop: shop.commit([Entry("40000", b"x", shop.blob(QUEUE))]),
    "object that is missing": _missing,
    "file of 300 MB": _large,
    "folders a thousand deep": _nested(1_000, 1),
    "too many files": _nested(2, 150),
    "ten thousand million files": _nested(10, 10),
}  # fmt: skip


class Figures(msgspec.Struct, kw_only=True):
    """What came of following them. `escapes`: something of the host was read. `overdue`: it took more than a minute."""

    tried: int = 0
    kept_out: int = 0
    read_as_files: int = 0
    escapes: int = 0
    commands_run: int = 0
    tracebacks: int = 0
    overdue: int = 0
    slowest_s: float = 0.0
    first_fault: str = ""


OVERDUE_S = 60


def try_repositories(folder: Path, names: Sequence[str] = tuple(MADE)) -> Figures:
    """Fetch and read each as the control plane would, and read it in place as `quorate plan` would."""
    figures = Figures()
    for number, name in enumerate(names):
        home = folder / str(number)
        home.mkdir()
        shop = Workshop(home / "origin")
        MADE[name](shop)
        shop.ran.unlink(missing_ok=True)  # Writing it may have run what reading it must not.
        began = perf_counter()
        reader = _Reader(shop, home / "mirror")
        reader.start()
        reader.join(OVERDUE_S)
        figures.tried += 1
        figures.overdue += reader.is_alive()
        figures.slowest_s = max(figures.slowest_s, perf_counter() - began)
        figures.kept_out += reader.refused
        figures.read_as_files += reader.accepted
        figures.escapes += reader.escaped
        figures.commands_run += shop.ran.exists()
        figures.tracebacks += bool(reader.fault)
        if reader.is_alive() or reader.fault or reader.escaped or shop.ran.exists():
            figures.first_fault = figures.first_fault or f"{name}: {reader.fault or 'see the figures'}"
    return figures


class _Reader(threading.Thread):
    """Follows one repository; a daemon, so that one that never ends is counted and left."""

    def __init__(self, shop: Workshop, mirror: Path) -> None:
        super().__init__(daemon=True)
        self.refused = self.accepted = self.escaped = False
        self.fault = ""
        self._shop, self._mirror = shop, mirror

    def run(self) -> None:
        try:
            mirror = GitMirror(self._mirror, str(self._shop.folder))
            for read in (lambda: mirror.read(mirror.fetch("main")), lambda: read_revision(self._shop.folder, "main")):
                self._judge(read)
        except Exception as error:  # noqa: BLE001 - whatever else is raised is what is looked for
            self.fault = f"{type(error).__name__}: {error}"

    def _judge(self, read: Callable[[], object]) -> None:
        try:
            files = read().files  # type: ignore[attr-defined]
        except GitSourceError:
            self.refused = True
            return
        reading = read_repository(files)
        self.escaped |= any(CANARY.encode() in content for content in files.contents.values())
        self.escaped |= CANARY in str(reading)
        if reading.compiled is None:
            self.refused = True
        else:
            self.accepted = True
