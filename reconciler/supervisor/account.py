"""Gives up the rights of the control plane for those of the account that a task runs as."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any


def owner_of(account: Mapping[str, Any] | None) -> tuple[int, int] | None:
    """The user and group to which files of the task belong; None: the supervisor's account."""
    return (account["uid"], account["gid"]) if account else None


def become(account: Mapping[str, Any] | None) -> None:
    """Be this account for good: there is no way back. None: stay the same account. Raises OSError, and then nothing may run."""
    if account is None:
        return
    os.umask(0o077)
    os.setgroups(account["groups"])
    os.setresgid(account["gid"], account["gid"], account["gid"])
    os.setresuid(account["uid"], account["uid"], account["uid"])
