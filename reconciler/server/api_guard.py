"""Which requests the API of this process lets in."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import urlsplit

from reconciler.access.authenticator import Authenticator
from reconciler.access.client_secrets import ClientSecrets
from reconciler.access.code_flow import CodeFlow
from reconciler.access.oidc import OidcVerifier
from reconciler.access.policy import AccessPolicy
from reconciler.access.session_keeper import SessionKeeper
from reconciler.access.token_file import own_token_source
from reconciler.access.tokens import UserTokenFile
from reconciler.api.guard import LOOPBACK_NAMES, Guard
from reconciler.model.clock import SystemClock
from reconciler.protocols.sessions import Sessions
from reconciler.server.settings import Settings


class ApiDoors(NamedTuple):
    """What lets requests in, what keeps sessions of browsers, and what takes users to identity providers and back."""

    guard: Guard
    keeper: SessionKeeper
    flow: CodeFlow


def doors_of(settings: Settings, access: Callable[[], AccessPolicy | None], sessions: Sessions) -> ApiDoors:
    """The token of the state folder, the token file, identity providers, and who is signed in by these.

    Raises TokenFileError, ClientSecretError.
    """
    tokens = UserTokenFile(settings.tokens) if settings.tokens is not None else None
    client_secrets = ClientSecrets(settings.client_secrets)
    # Better found wrong now than by the first request.
    if tokens is not None:
        tokens.check()
    client_secrets.check()
    token = own_token_source(settings.folder.token) if settings.authenticate else None
    clock, user = SystemClock(), _user_name()
    identify = Authenticator(access, OidcVerifier(clock), tokens)
    keeper = SessionKeeper(sessions, clock, token, user, tokens, identify)
    guard = Guard(token, user, _hosts(settings), identify, keeper.caller, settings.external_url)
    return ApiDoors(guard, keeper, CodeFlow(identify, clock, client_secrets))


def _hosts(settings: Settings) -> frozenset[str]:
    wildcard = settings.host in ("0.0.0.0", "::")  # noqa: S104  (compared with, not listened to)
    own_name = () if wildcard else (settings.host,)
    external = urlsplit(settings.external_url).hostname
    return LOOPBACK_NAMES.union(own_name, settings.hosts, (external,) if external else ())


def _user_name() -> str:
    """The owner of the token file; a container may run under a number that has no name."""
    with suppress(KeyError):
        return pwd.getpwuid(os.geteuid()).pw_name
    return f"uid-{os.geteuid()}"
