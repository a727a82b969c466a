"""Settles, before a control plane begins, on what terms its machine runs tasks: with which secrets, and as which account."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from reconciler.node.local.accounts import Submitters
from reconciler.node.local.secrets import SecretFolder, check_secret_folder
from reconciler.node.local.terms import Terms
from solver.model.workload import QueueName
from solver.policy.policy import Policy
from solver.policy.tree import QueueTree

_ENTER: Final = 0o001


class IdentityError(Exception):
    """Jobs can't run as their submitters' accounts: this is not root, or accounts can't reach the state folder."""


def terms_of(secrets: Path | None, accounts: Mapping[str, str] | None, policy: Callable[[], Policy]) -> Terms:
    """The terms. `accounts` None: every job runs as the user of this process. Raises UnsafeSecretsError."""
    return Terms(secret_folder_of(secrets, policy), Submitters(accounts) if accounts is not None else None)


def secret_folder_of(secrets: Path | None, policy: Callable[[], Policy]) -> SecretFolder | None:
    """The secrets of the queues of a policy; None: there are none. Raises UnsafeSecretsError."""
    if secrets is None:
        return None
    check_secret_folder(secrets)

    def lineage(queue: QueueName) -> tuple[QueueName, ...]:
        return QueueTree.of(policy()).path(queue)

    return SecretFolder(secrets.absolute(), lineage)


def open_to_accounts(state: Path, tasks: Path) -> None:
    """Let the accounts of jobs pass through the state folder to their tasks, and read nothing else there.

    What is there is closed first, and what comes later by the umask. Raises IdentityError where accounts can't get that far, or
    this is not root.
    """
    if os.geteuid() != 0:
        raise IdentityError("--run-as-submitter needs root, which alone may become another user. Start it as root")
    os.umask(0o077)
    for folder in state.resolve().parents:
        if not folder.stat().st_mode & _ENTER:
            raise IdentityError(
                f"{folder}: only some may enter it, so jobs can't reach {state}. Choose another --state"
            )
    for entry in os.scandir(state):
        # Tasks that run may be on their way through the one folder that stays open.
        if not entry.is_symlink() and Path(entry) != tasks:
            os.chmod(entry.path, entry.stat().st_mode & 0o700)
    for way in (state, tasks, tasks / "live", tasks / "forgotten"):
        way.mkdir(mode=0o700, exist_ok=True)
        way.chmod(0o711)
