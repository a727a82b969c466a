"""What an API server, or the way to it, may answer instead of what was asked for, sorted by what must be done."""

from __future__ import annotations

import msgspec


class KubernetesError(Exception):
    """A request to the API server has not brought what was asked for; the message says which, and why."""


class CredentialsError(Exception):
    """There is no way to the API server. A person acts; the message says place, problem and fix."""


class UnreachableError(KubernetesError):
    """No answer, or one that does not say: whether a write was done is not known. The machine acts: look, and try again.

    `sent` is False where the request never left, so that nothing was done.
    """

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class QuietWatchError(UnreachableError):
    """A watch on which nothing came for long: nothing has happened, or the connection is gone and nobody said so."""


class RefusedError(KubernetesError):
    """The server has answered, and has not done it. `status` is HTTP's, `reason` Kubernetes' own word, such as Conflict."""

    def __init__(self, request: str, status: int, reason: str, message: str) -> None:
        super().__init__(f"{request}: {status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


class ConflictError(RefusedError):
    """409, or 422 of a patch's uid: it is not as the request says, or is there already. The machine acts: look again."""


class GoneError(RefusedError):
    """410: the server no longer remembers that resourceVersion. The machine acts: list again."""


class NotFoundError(RefusedError):
    """404: there is no such object, or the server does not know this kind."""


class NotAllowedError(RefusedError):
    """401 or 403: a person has to give this account the right to it."""


class TooManyRequestsError(RefusedError):
    """429: not now. After `retry_after_s` seconds it may be asked again; `budget` says that a PodDisruptionBudget refused."""

    def __init__(
        self, request: str, status: int, reason: str, message: str, *, retry_after_s: float, budget: bool
    ) -> None:
        super().__init__(request, status, reason, message)
        self.retry_after_s = retry_after_s
        self.budget = budget


class UnreadableError(KubernetesError):
    """The server's answer is not what this version understands. A person acts: update one of the two."""


class _Cause(msgspec.Struct, frozen=True):
    reason: str = ""
    message: str = ""
    field: str = ""


class _Details(msgspec.Struct, frozen=True, rename="camel"):
    causes: tuple[_Cause, ...] | None = None
    retry_after_seconds: int = 0


class _Status(msgspec.Struct, frozen=True):
    reason: str = ""
    message: str = ""
    code: int = 0
    details: _Details | None = None


_STATUS = msgspec.json.Decoder(_Status)
_BY_STATUS: dict[int, type[RefusedError]] = {
    401: NotAllowedError, 403: NotAllowedError, 404: NotFoundError, 409: ConflictError, 410: GoneError,
}  # fmt: skip
_SHOWN_MAX = 500
_RETRY_AFTER_S = 1.0
"""Where a 429 does not say when: what an API server under priority and fairness answers."""


def refusal(request: str, status: int, body: bytes, retry_after: str | None = None) -> KubernetesError:
    """What to raise for an answer of `status` 400 or more, or for the Status in a watch (then 0: its own code counts).

    5xx is UnreachableError: a server that gave up waiting for etcd does not know whether the write was done either.
    """
    said = _read(body)
    status = status or said.code
    text = (said.message or body.decode(errors="replace"))[:_SHOWN_MAX]
    reason = said.reason or "Unexplained"
    if status >= 500:
        return UnreachableError(f"{request}: {status} {reason}: {text}")
    if status == 429:
        causes = (said.details and said.details.causes) or ()
        budgets = [cause.message for cause in causes if cause.reason == "DisruptionBudget"]
        after_s, text = _seconds(retry_after, said.details), " ".join((text, *budgets))[:_SHOWN_MAX]
        return TooManyRequestsError(request, status, reason, text, retry_after_s=after_s, budget=bool(budgets))
    if status == 422 and any(cause.field == "metadata.uid" for cause in (said.details and said.details.causes) or ()):
        return ConflictError(request, status, reason, text)  # a patch that names the uid of what was there before
    return _BY_STATUS.get(status, RefusedError)(request, status, reason, text)


def _read(body: bytes) -> _Status:
    try:
        return _STATUS.decode(body)
    except msgspec.MsgspecError:  # a proxy in between answers in words of its own
        return _Status()


def _seconds(retry_after: str | None, details: _Details | None) -> float:
    if retry_after and retry_after.isascii() and retry_after.isdigit():
        return float(retry_after)
    return float(details.retry_after_seconds) if details and details.retry_after_seconds else _RETRY_AFTER_S
