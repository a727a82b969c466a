"""A secret in a file that may be replaced while a process runs: read anew when the file changes, and never lost to a bad one.

A file may hold two secrets for the time of a change, one a line: the first is what is sent, and whatever is shown to this process
counts if it is among them. So the others are given the new one in any order, and the old one is taken out at the end.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Final, Generic, NamedTuple, Protocol, TypeVar
from weakref import WeakSet

import structlog

from reconciler.model.clock import Clock, SystemClock

T = TypeVar("T")

UNFINISHED_MS: Final = 1_000
"""A file without a last line break may be half written: it replaces what is known once it has not changed for so long."""

OwnTokens = str | Callable[[], Collection[str]]
"""A token that stays, or what says which tokens count now."""


class _Stamp(NamedTuple):
    """What tells one content of a file from the next, and who may touch it."""

    inode: int
    written_ns: int
    changed_ns: int
    size: int
    mode: int
    owner: int


@dataclass(frozen=True, slots=True)
class _Read(Generic[T]):
    """What was read; `problem`: why the file as it is now could not be, and `value` is that of before."""

    stamp: _Stamp | None
    value: T
    problem: str = ""


class SecretProblem(NamedTuple):
    """What is wrong with a file as it is now. `is_kept`: what was read of it before counts; otherwise nothing does."""

    problem: str
    is_kept: bool


class WatchedSecret(Protocol):
    """Files that a process has read secrets from."""

    @property
    def place(self) -> str:
        """Which."""

    def look(self) -> SecretProblem | None:
        """What is wrong with them now; None: they can be used."""


class SecretRegister:
    """What this process reads secrets from, for as long as anything does. Any thread may ask."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._all: WeakSet[WatchedSecret] = WeakSet()

    def add(self, secret: WatchedSecret) -> None:
        """It goes with its last user."""
        with self._lock:
            self._all.add(secret)

    def looked_at(self) -> dict[str, SecretProblem | None]:
        """What is wrong with each, by its place."""
        with self._lock:
            living = sorted(self._all, key=lambda secret: secret.place)
        found: dict[str, SecretProblem | None] = {}
        for secret in living:
            found[secret.place] = secret.look() or found.get(secret.place)
        return found


SECRETS: Final = SecretRegister()
"""Readers are made in many places, and each would have to be handed on to where they are told of."""


class SecretFile(Generic[T]):
    """Any thread may ask. `read` raises whatever it likes for a file that can't be used.

    `spoilt`: the errors after which the last good value goes on; others are raised, and nothing counts until the file is mended.
    `first`: what was read of it already.
    """

    def __init__(
        self,
        path: Path,
        read: Callable[[Path], T],
        spoilt: type[Exception] | tuple[type[Exception], ...],
        first: T | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.path = path
        self._clock = clock or SystemClock()
        self._read_file = read
        self._spoilt = spoilt
        self._known = None if first is None else _Read(None, first)
        self._lock = Lock()
        SECRETS.add(self)

    def __call__(self) -> T:
        """The secret as the file has it now. Raises what `read` raises, where there was never a good one."""
        with self._lock:
            known = self._known
            found = _stamp(self.path)
            if known is None:
                known = self._known = _Read(found, self._read_file(self.path))
            elif known.stamp != found and not (found and self._may_be_unfinished(found)):
                known = self._known = self._read_anew(known, found)
            return known.value

    @property
    def problem(self) -> str:
        """Why what is known is older than the file; "": it is not."""
        return self._known.problem if self._known else ""

    @property
    def place(self) -> str:
        """The file."""
        return str(self.path)

    def look(self) -> SecretProblem | None:
        """What is wrong with the file now; None: it can be used."""
        try:
            self()
        except Exception as error:  # noqa: BLE001  (`read` raises what it likes)
            return SecretProblem(str(error), is_kept=False)
        return SecretProblem(self.problem, is_kept=True) if self.problem else None

    def _read_anew(self, known: _Read[T], found: _Stamp | None) -> _Read[T]:
        log = structlog.get_logger("quorate")
        try:
            value = self._read_file(self.path)
        except self._spoilt as error:
            told = {"file": str(self.path), "problem": str(error), "kept": "what was read of it before"}
            log.error("secret-unusable", **told)  # noqa: TRY400  (of the file, not of the program)
            return _Read(found, known.value, str(error))
        log.info("secret-read", file=str(self.path))
        return _Read(found, value)

    def _may_be_unfinished(self, found: _Stamp) -> bool:
        """Written a moment ago, and empty or in the middle of a line."""
        if not 0 <= self._clock.now() - found.changed_ns // 1_000_000 < UNFINISHED_MS:
            return False
        try:
            with self.path.open("rb") as file:
                file.seek(-1, os.SEEK_END)
                return file.read(1) != b"\n"
        except OSError:  # an empty one has no last byte
            return True


def is_among(given: str, tokens: OwnTokens) -> bool:
    """Whether a token that was shown counts; how long it takes says nothing of how much of it is right."""
    return any(secrets.compare_digest(given.encode(), token.encode()) for token in tokens_of(tokens))


def tokens_of(tokens: OwnTokens) -> Collection[str]:
    """Those that count now."""
    return (tokens,) if isinstance(tokens, str) else tokens()


def _stamp(path: Path) -> _Stamp | None:
    """None: there is no such file, or it can't be looked at."""
    try:
        found = path.stat()
    except OSError:
        return None
    written, changed = found.st_mtime_ns, found.st_ctime_ns
    return _Stamp(found.st_ino, written, changed, found.st_size, found.st_mode, found.st_uid)
