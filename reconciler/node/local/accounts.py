"""Which account of this machine a job runs as: that of the user that submitted it."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

UID_MIN: Final = 1_000
"""Accounts below are the system's own, as login.defs(5) has it where it was not changed."""


class NoAccountError(Exception):
    """There is none as which this user's jobs may run. The operator must map the user to one."""


@dataclass(frozen=True, slots=True)
class Account:
    """As getpwnam(3) and getgrouplist(3) have it."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str

    @property
    def environment(self) -> dict[str, str]:
        """What login(1) would tell its processes."""
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name}


NOBODY: Final = Account("nobody", 65_534, 65_534, (), "/")
"""The owner that the kernel shows for one that it can't name (overflowuid, user_namespaces(7)); it owns nothing."""


@dataclass(frozen=True, slots=True)
class Submitters:
    """Finds the accounts of users: the one that `accounts` maps a user to, else the one of the same name."""

    accounts: Mapping[str, str]

    def account_of(self, user: str) -> Account:
        """Never root's, the control plane's own, or one of the system. Raises NoAccountError."""
        name = self.accounts.get(user, user)
        try:
            entry = pwd.getpwnam(name)
        except (KeyError, ValueError):  # ValueError: a name with a zero byte.
            raise NoAccountError(f"there is no account {name!r} on this machine for the user {user!r}") from None
        if entry.pw_uid < UID_MIN or entry.pw_uid == os.geteuid():
            raise NoAccountError(
                f"the account {name!r} of the user {user!r} is the system's own, and no job runs as it"
            )
        groups = tuple(os.getgrouplist(name, entry.pw_gid))
        if not {entry.pw_gid, *groups}.isdisjoint({0}):
            raise NoAccountError(f"the account {name!r} of the user {user!r} is in root's group, and no job runs as it")
        return Account(name, entry.pw_uid, entry.pw_gid, groups, entry.pw_dir)
