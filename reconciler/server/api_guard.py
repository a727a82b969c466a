"""Which requests the API of this process lets in."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable
from contextlib import suppress

from reconciler.access.authenticator import Authenticator
from reconciler.access.oidc import OidcVerifier
from reconciler.access.policy import AccessPolicy
from reconciler.access.session_keeper import SessionKeeper
from reconciler.access.token_file import read_or_make_token
from reconciler.access.tokens import UserTokenFile
from reconciler.api.guard import LOOPBACK_NAMES, Guard
from reconciler.model.clock import SystemClock
from reconciler.protocols.sessions import Sessions
from reconciler.server.settings import Settings


def guard_of(
    settings: Settings, access: Callable[[], AccessPolicy | None], sessions: Sessions
) -> tuple[Guard, SessionKeeper]:
    """The token of the state folder, the token file, identity providers, and who is signed in by these. Raises TokenFileError."""
    tokens = UserTokenFile(settings.tokens) if settings.tokens is not None else None
    if tokens is not None:
        # Better found wrong now than by the first request.
        tokens.check()
    token = read_or_make_token(settings.folder.token) if settings.authenticate else None
    wildcard = settings.host in ("0.0.0.0", "::")  # noqa: S104  (compared with, not listened to)
    own_name = () if wildcard else (settings.host,)
    clock, user = SystemClock(), _user_name()
    identify = Authenticator(access, OidcVerifier(clock), tokens)
    keeper = SessionKeeper(sessions, clock, token, user, tokens, identify)
    return Guard(token, user, LOOPBACK_NAMES.union(own_name, settings.hosts), identify, keeper.caller), keeper


def _user_name() -> str:
    """The owner of the token file; a container may run under a number that has no name."""
    with suppress(KeyError):
        return pwd.getpwuid(os.geteuid()).pw_name
    return f"uid-{os.geteuid()}"
