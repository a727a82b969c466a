"""The language of chat messages: text with {field}, and nothing else.

Not str.format: that reaches attributes ({job.__class__}) and widths ({job:>99999999}).
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from reconciler.alerts.alert import Alert

FIELDS: Final = frozenset(
    {"kind", "time", "subject", "cause", "actor", "job", "queue", "user", "attempt", "beneficiary"}
)
DEFAULT_OF_JOB: Final = "{job} of {user} in {queue}: {kind}. {cause}"
DEFAULT_OF_POLICY: Final = "policy {subject}: {kind}. {cause}"
DEFAULT_OF_NODE: Final = "{subject}: {kind}. {cause}"

_FIELD: Final = re.compile(r"\{(" + "|".join(sorted(FIELDS)) + r")\}")
_BRACED: Final = re.compile(r"\{([^{}]*)\}?|\}")
_VALUE_MAX: Final = 500
"""Characters of one value: a cause may be as long as a policy's error, a message is read on a telephone."""

_ENTITIES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
"""With these Slack takes a text for text: no link, no <!channel>. Mattermost reads them as what they stand for.
Source: "Formatting message text", Escaping text, in Slack's documentation for developers."""

_JOINER: Final = "\u2060"
"""Word joiner: shown as nothing. Behind what begins mark-up, it is no mark-up any more."""

_MARKS: Final = re.compile(r"[@#`*_~\[\]|!]|:(?=//)")


def wrong_fields(template: str) -> tuple[str, ...]:
    """What stands in braces and is no field, and braces without a partner."""
    return tuple(
        match[1] or match[0]
        for match in _BRACED.finditer(template)
        if not (match[0].endswith("}") and match[1] in FIELDS)
    )


def render_template(template: str, alert: Alert) -> str:
    """The template with the alert's values, each escaped. A value is never read as a template."""
    values = msgspec.structs.asdict(alert) | {"attempt": alert.attempt or ""}
    return _FIELD.sub(lambda field: escaped(str(values[field[1]])), template)


def escaped(value: str) -> str:
    """A value that a chat shows as it is: it mentions no user, links nowhere, and is one line."""
    text = "".join(char if char.isprintable() else " " for char in value)
    shown = text if len(text) <= _VALUE_MAX else text[: _VALUE_MAX - 1] + "…"
    marked = _MARKS.sub(lambda mark: mark[0] + _JOINER, shown)
    return "".join(_ENTITIES.get(char, char) for char in marked)
