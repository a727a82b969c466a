"""What a join token is: a secret, for one node, that also says which authority to believe."""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import Final, NamedTuple

from reconciler.backends.baremetal.certificates import is_node_name
from solver.model.cluster import NodeName

_BYTES: Final = 32
_WRITTEN: Final = re.compile(r"qj1\.([A-Za-z0-9_-]{43})\.([A-Za-z0-9_-]{43})\.([a-z0-9.-]{1,253})")


class JoinTokenError(ValueError):
    """What was given is no join token."""


class JoinToken(NamedTuple):
    """`root`: fingerprint of the authority that signs, so that the agent believes no other."""

    node: NodeName
    root: str
    secret: str

    def __str__(self) -> str:
        return f"qj1.{self.secret}.{self.root}.{self.node}"

    def __repr__(self) -> str:
        """Logs and tracebacks never show the secret."""
        return f"JoinToken(node={self.node!r})"

    @property
    def hash(self) -> str:
        """What the store keeps. The secret is random, so that it can't be found by this."""
        return "sha256:" + hashlib.sha256(self.secret.encode()).hexdigest()


def new_token(node: NodeName, root: str) -> JoinToken:
    """A fresh one."""
    return JoinToken(node, root, secrets.token_urlsafe(_BYTES))


def read_token(written: str) -> JoinToken:
    """Raises JoinTokenError."""
    match = _WRITTEN.fullmatch(written.strip())
    if match is None or not is_node_name(match[3]):
        raise JoinTokenError("this is no join token: make one with `quorate agents token NODE`")
    return JoinToken(NodeName(match[3]), match[2], match[1])
