"""The AccessPolicy document: how users prove their identity, groups, the roles that gives them, and signers of commits."""

from __future__ import annotations

from typing import Final, Literal

from reconciler.access.commits import Commits
from solver.model.document import Document
from solver.model.quantities import Duration
from solver.model.workload import QueueName

Role = Literal["planner", "viewer", "submitter", "operator", "admin"]
Forge = Literal["github", "gitlab", "gitea"]
UserClaim = Literal["preferred_username", "email", "sub"]

ANYBODY: Final = "group:*"
"""The subject of every user with a proven identity."""

SESSION_MAX: Final = Duration(24 * 3_600_000)
"""Of the console, whatever it began with."""


class OidcIssuer(Document, frozen=True):
    """An identity provider with signed tokens (JWT) that are taken. `jwks_url` "": where its discovery document says.

    `groups_claim` "": its tokens name no groups. `client_id` "": the console does not send users there to sign in. `scopes`: what
    it asks for beside `openid`. `session_duration` None: a session of the console ends with the ID token that it began with.
    """

    issuer: str
    audience: str
    user_claim: UserClaim = "preferred_username"
    groups_claim: str = ""
    jwks_url: str = ""
    client_id: str = ""
    scopes: tuple[str, ...] = ("profile", "email")
    session_duration: Duration | None = None

    @property
    def place(self) -> str:
        """How the console's addresses name it: its URL without scheme and last slash."""
        return self.issuer.partition("://")[2].rstrip("/")


class IdentitySettings(Document, frozen=True):
    """How callers prove their identity, beside the state folder's token. `tokens` file: also by lines of the token file."""

    oidc: tuple[OidcIssuer, ...] = ()
    tokens: Literal["file", "none"] = "file"

    @property
    def clients(self) -> tuple[OidcIssuer, ...]:
        """Issuers to which the console sends users to sign in."""
        return tuple(issuer for issuer in self.oidc if issuer.client_id)


class RoleBinding(Document, frozen=True):
    """Gives a role to users and groups, in these queues and all below them; `queues` None: everywhere."""

    role: Role
    subjects: tuple[str, ...]
    queues: tuple[QueueName, ...] | None = None


class BreakGlass(Document, frozen=True):
    """What people may do by hand beside what Git says. `max_duration`: the longest that one such thing lasts."""

    max_duration: Duration = Duration(24 * 3_600_000)


class CodeOwners(Document, frozen=True):
    """How a repository's host asks for reviews. `handles`: what users and groups are called there, by subject."""

    forge: Forge = "github"
    handles: dict[str, str] = {}  # noqa: RUF012  (msgspec copies an empty default for every instance)


class AccessPolicy(Document, frozen=True):
    """Which users may ask for what. `groups`: members by name, beside the groups that tokens state."""

    identity: IdentitySettings = IdentitySettings()
    groups: dict[str, tuple[str, ...]] = {}  # noqa: RUF012  (msgspec copies an empty default for every instance)
    roles: tuple[RoleBinding, ...] = ()
    break_glass: BreakGlass = BreakGlass()
    commits: Commits = Commits()
    code_owners: CodeOwners = CodeOwners()
    origin: str = ""
