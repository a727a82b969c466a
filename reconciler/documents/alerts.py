"""What is wrong with AlertPolicy documents: unsafe URLs, credentials in Git, templates with fields that there are not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final
from urllib.parse import urlsplit

from reconciler.alerts.message import OWN_HEADERS
from reconciler.alerts.policy import AlertPolicy, Webhook
from reconciler.alerts.template import FIELDS, wrong_fields
from reconciler.documents.declarations import Declaration
from reconciler.model.problem import Path, Problem, did_you_mean, shown
from reconciler.model.urls import is_safe_url

_CREDENTIALS: Final = frozenset({"authorization", "proxy-authorization", "cookie"})
_CONNECTION: Final = frozenset(
    {"connection", "content-length", "content-encoding", "host", "te", "transfer-encoding", "upgrade"}
)
"""What says how a message is sent, which is not for a policy to say."""

_SECRET_WORDS: Final = ("token", "secret", "password", "api-key", "apikey", "auth")


def alert_problems(documents: Sequence[Declaration[AlertPolicy]], queues: set[str] | None) -> Iterator[Problem]:
    """`queues`: the names of all; None where some are unreadable."""
    for policy in documents:
        for index, queue in enumerate(policy.value.queues):
            if queues is not None and queue not in queues:
                fix = did_you_mean(queue, queues)
                yield policy.problem(("spec", "queues", index), "unknown-queue", f"there is no Queue {queue}", fix)
        seen: dict[str, int] = {}
        for index, webhook in enumerate(policy.value.webhooks):
            at: Path = ("spec", "webhooks", index)
            if seen.setdefault(webhook.name, index) != index:
                message = f"there is a webhook {webhook.name} in this policy already"
                yield policy.problem((*at, "name"), "duplicate-webhook", message, "Give each a name of its own.")
            yield from _url_problems(policy, at, webhook)
            yield from _header_problems(policy, at, webhook)
            yield from _template_problems(policy, at, webhook)


def _url_problems(policy: Declaration[AlertPolicy], at: Path, webhook: Webhook) -> Iterator[Problem]:
    if bool(webhook.url) == bool(webhook.url_file):
        message = f"webhook {webhook.name} has {'both url and urlFile' if webhook.url else 'neither url nor urlFile'}"
        yield policy.problem(at, "one-url", message, "Give it one of them.")
    # Not shown: a message goes to logs and pull requests.
    elif webhook.url and has_credentials(webhook.url):
        message = "the URL has a user, a password or parameters in it"
        fix = "Put the whole URL into a file of the server, and name that in urlFile."
        yield policy.problem((*at, "url"), "credentials-in-url", message, fix)
    elif webhook.url and not is_safe_url(webhook.url):
        message = "a host in between could read messages and change them: it is no https URL"
        fix = "Write it as https://HOST/...; http is for loopback alone."
        yield policy.problem((*at, "url"), "insecure-url", message, fix)


def has_credentials(url: str) -> bool:
    """Whether a URL has something in it that may be secret: a user, a password, parameters."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.username is not None or parts.password is not None or bool(parts.query or parts.fragment)


def _header_problems(policy: Declaration[AlertPolicy], at: Path, webhook: Webhook) -> Iterator[Problem]:
    for name in webhook.headers:
        place: Path = (*at, "headers", name)
        lower = name.lower()
        if lower in _CREDENTIALS or any(word in lower for word in _SECRET_WORDS):
            fix = "Sign messages with secretFile, or put a URL that is a secret into urlFile."
            yield policy.problem(
                place, "credentials-in-header", f"{name} is for credentials, and Git is no place for them", fix
            )
        elif lower in OWN_HEADERS | _CONNECTION:
            yield policy.problem(place, "header-taken", f"{name} is set by the server", "Leave it out.")


def _template_problems(policy: Declaration[AlertPolicy], at: Path, webhook: Webhook) -> Iterator[Problem]:
    if webhook.template and webhook.format != "chat":
        message = f"a template is for chat, and this webhook's format is {webhook.format}"
        yield policy.problem((*at, "template"), "template-unused", message, "Write format: chat, or leave it out.")
    for wrong in wrong_fields(webhook.template):
        message = f"the template has no field {shown(wrong)}"
        fix = did_you_mean(wrong, FIELDS) or "Braces hold the name of a field and nothing else."
        yield policy.problem((*at, "template"), "unknown-field", message, fix)
