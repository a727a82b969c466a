"""Accounts of Slurm as a tree of queues: shares as weights, group limits as ceilings, users as submitters."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from typing import Final

from reconciler.importers.draft import QueueDraft
from reconciler.importers.slurm.jobclasses import JobClasses
from reconciler.importers.slurm.settings import ASSOCIATION_RULES
from reconciler.importers.slurm.tres import Tres, tres
from reconciler.importers.source import SourceRecord
from reconciler.importers.system import Drawing
from reconciler.model.problem import InvalidDocumentsError, problem_of

_PRINCIPAL = re.compile(r"[A-Za-z0-9._@+][A-Za-z0-9._@+:/-]*")
_SUBMITTERS_MAX: Final = 1000
ROOT: Final = "root"


class AccountTree:
    """The associations of one cluster. `root`: the queue that stands for the cluster."""

    def __init__(
        self, drawing: Drawing, records: Sequence[SourceRecord], root: QueueDraft, types: Sequence[str]
    ) -> None:
        self._drawing, self._account, self._root, self._types = drawing, drawing.account, root, types
        self._accounts = {record.text("account"): record for record in records if not record.has("user")}
        self._users = defaultdict[str, list[SourceRecord]](list)
        for record in records:
            if record.has("user") and (record.text("account"), record.text("user")) == (ROOT, ROOT):
                self._account.dropped(
                    record, (), "the administrator's own association: their rights are for the AccessPolicy to say"
                )
            elif record.has("user"):
                self._users[record.text("account")].append(record)

    def draw(self, classes: JobClasses) -> None:
        """Draw a queue for each account, and below it one for its own users where accounts are below it too."""
        parents = {record.text("parentname") for record in self._accounts.values()}
        for name, record in self._accounts.items():
            queue = self._root if name == ROOT else self._queue(name, record)
            self._limits(record, queue)
            leaf = queue
            if name in parents and self._users[name]:
                leaf = self._direct(name, queue)
            if leaf is not self._root and (leaf is not queue or name not in parents):
                self._classes(record, leaf, name, classes)
            self._submitters(name, leaf)
            self._account.settle(record, ASSOCIATION_RULES)

    def _queue(self, name: str, record: SourceRecord) -> QueueDraft:
        above = record.text("parentname")
        parent = self._root.name if above in (ROOT, "") else self._drawing.queues.of(f"account/{above}", above)
        queue = QueueDraft(self._drawing.queues.of(f"account/{name}", name), parent)
        queue.comments.append(f"From account {name}, {record.origin}.")
        if above not in (*self._accounts, ROOT, ""):
            message = f"account {name} lies in account {above}, which the table does not have"
            fix = "Print all accounts of the cluster."
            raise InvalidDocumentsError([problem_of(record.origin, "unknown-parent", message, fix)])
        for key in ("account", "parentname", "par"):
            self._account.carried(record, (key,), f"Queue {queue.name}")
        self._weight(record, queue)
        return self._drawing.draft.add(queue)

    def _direct(self, name: str, queue: QueueDraft) -> QueueDraft:
        """Jobs go to leaves here: what users of an inner account submit needs a queue beside those of the accounts below it."""
        found = QueueDraft(self._drawing.queues.of(f"users/{name}", f"{queue.name}-users"), queue.name)
        shares = [_share(record) for record in self._users[name]]
        found.weight = sum(filter(None, shares), Fraction(0)) or None
        origins = self._users[name][0].origin
        found.comments.append(
            f"For users of account {name} itself, {origins}: jobs go to queues that have none below them."
        )
        return self._drawing.draft.add(found)

    def _weight(self, record: SourceRecord, queue: QueueDraft) -> None:
        if record.text("share") == "parent":
            note = "it shares as its parent does there; here it has the weight 1 beside its siblings"
            self._account.changed(record, ("share",), "weight", note)
        elif record.has("share"):
            queue.weight = _share(record)
            if queue.weight is None:
                self._account.dropped(
                    record, ("share",), "a share of 0 comes last of all there; here it has the weight 1"
                )
            note = "an account's share of the GPUs is also its guarantee: guaranteed is left out"
            self._account.carried(record, ("share",), "weight", note)

    def _limits(self, record: SourceRecord, queue: QueueDraft) -> None:
        self._account.carried(record, ("account",), f"Queue {queue.name}")
        self._account.carried(record, ("share",), f"Queue {queue.name}", "the root of all accounts has no siblings")
        if not record.has("grptres"):
            return
        found = tres_of(record, "grptres")
        for resource, amount in found.host.items():
            queue.quota_for(resource).max = amount
        for kind, amount in found.gpus.items():
            for gpu_type in [self._drawing.types.named(kind)] if kind else self._types:
                queue.quota_for(gpu_type).max = amount
        if "" in found.gpus and len(self._types) > 1:
            note = "a limit over all GPU types has no equal: each type by itself has this max"
            self._account.asked(record, ("grptres",), "quota max", note)
        left = f"; nothing counts {', '.join(found.others)}" if found.others else ""
        self._account.note("changed" if left else "carried", record, ("grptres",), "quota max", left.removeprefix("; "))

    def _submitters(self, name: str, queue: QueueDraft) -> None:
        users = sorted({record.text("user") for record in self._users[name]})
        fit = [user for user in users if _PRINCIPAL.fullmatch(user)]
        if 0 < len(fit) <= _SUBMITTERS_MAX:
            queue.more["access"] = {"submitters": [f"user:{user}" for user in fit]}
        per_user = self._per_user(name, queue)
        for record in self._users[name]:
            if record.text("user") not in fit or len(fit) > _SUBMITTERS_MAX:
                note = f"at most {_SUBMITTERS_MAX} names fit: write a group into access.submitters"
                self._account.asked(record, ("user",), f"Queue {queue.name} access.submitters", note)
            self._account.carried(record, ("account",), f"Queue {queue.name} access.submitters")
            self._account.carried(record, ("parentname",), f"Queue {queue.name}")
            self._account.dropped(
                record, ("share",), "users of a queue share it by priority and time, not by shares of their own"
            )
            note = "a queue takes the classes of the account and of all its users: each of them may use each"
            self._account.changed(record, ("qos",), "priorityClasses", note)
            if per_user:
                self._account.carried(record, ("grptres",), "quota perUser")
            note = (
                "perUser is one number for all users of a queue, and here they differ, or the GPU types are not named"
            )
            self._account.dropped(record, ("grptres",), note)
            self._account.settle(record, ASSOCIATION_RULES)

    def _per_user(self, name: str, queue: QueueDraft) -> bool:
        """Whether every user of the account has the same limits, which the queue then has."""
        said = {record.text("grptres") for record in self._users[name]}
        if len(said) != 1 or "" in said:
            return False
        found: Tres = tres_of(self._users[name][0], "grptres")
        if found.others or not (found.gpus or found.host) or ("" in found.gpus and len(self._types) != 1):
            return False
        for resource, limit in found.host.items():
            queue.quota_for(resource).per_user = limit
        for kind, amount in found.gpus.items():
            queue.quota_for(self._drawing.types.named(kind) if kind else self._types[0]).per_user = amount
        return True

    def _classes(self, record: SourceRecord, queue: QueueDraft, name: str, classes: JobClasses) -> None:
        said = (record, *self._users[name])
        qos = [each for one in said for each in one.text("qos").split(",") if each]
        allowed = classes.of_account(name, qos)
        if allowed:
            queue.more["priorityClasses"] = allowed
        elif allowed is not None:
            queue.more["stopPolicy"] = "Hold"
            queue.comments.append("No partition takes this account: no job of it starts.")
        self._account.carried(record, ("qos",), "priorityClasses")


def tres_of(record: SourceRecord, key: str) -> Tres:
    """The trackable resources in a field. Raises InvalidDocumentsError."""
    try:
        return tres(record.text(key))
    except ValueError as error:
        place = f"{record.file}:{record.line_of((key,))}"
        raise InvalidDocumentsError(
            [problem_of(place, "tres", f"{record.label}: {key}: {error}", "Correct it.")]
        ) from error


def _share(record: SourceRecord) -> Fraction | None:
    written = record.text("share")
    return Fraction(written) if written.isdecimal() and int(written) else None
