"""What an agent and a control plane say to each other when the agent gets a certificate: one question, one answer."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from solver.model.document import Document

JOIN_PATH: Final = "/join"
"""A WebSocket on the agents' port, without a certificate of the client: one question, one answer, and it is closed."""

ROOTS_PATH: Final = "/authorities"
"""A plain GET on the same port: the certificates of the authorities, which any client may read. The token says which to trust."""

MESSAGE_BYTES_MAX: Final = 16_384

Text = Annotated[str, msgspec.Meta(max_length=8_192)]


class JoinAsked(Document, frozen=True, tag_field="type", tag="join"):
    """A node's first certificate. `request`: a PKCS #10 request for it, as PEM."""

    token: Text
    request: Text


class RenewalAsked(Document, frozen=True, tag_field="type", tag="renew"):
    """The next certificate. `signature`: over the request as sent, by the key of `certificate`, in base64."""

    certificate: Text
    request: Text
    signature: Text


class Issued(Document, frozen=True, tag_field="type", tag="issued"):
    """The certificate that was asked for, and the authorities to believe from now on, as PEM; the one that signs comes first."""

    certificate: Text
    authorities: Text


class NotIssued(Document, frozen=True, tag_field="type", tag="refused"):
    """No certificate. `code`: for programs; `fix`: what a person can do about it."""

    code: Literal["malformed", "not-invited", "untrusted"]
    problem: str
    fix: str


Asked = JoinAsked | RenewalAsked
Answered = Issued | NotIssued
