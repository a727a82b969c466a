"""What is wrong with AccessPolicy documents: more than one, queues that do not exist, unsafe issuers, unfit or missing keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reconciler.access.commits import Signer
from reconciler.access.policy import SESSION_MAX, AccessPolicy
from reconciler.access.signing_keys import UnfitKeyError, openpgp_public_key, ssh_public_key
from reconciler.documents.clusters import ONE_OF_A_KIND
from reconciler.documents.declarations import Declaration
from reconciler.model.problem import Path, Problem, did_you_mean
from reconciler.model.urls import is_safe_url

_COMMITS: Path = ("spec", "commits")


def access_problems(documents: Sequence[Declaration[AccessPolicy]], queues: set[str] | None) -> Iterator[Problem]:
    """`queues`: the names of all; None where some are unreadable."""
    for access in documents[1:]:
        message = f"there is an AccessPolicy already, at {documents[0].origin}"
        yield access.problem(("kind",), "second-access-policy", message, ONE_OF_A_KIND)
    for access in documents:
        yield from _issuer_problems(access)
        yield from _commit_problems(access)
        for index, binding in enumerate(access.value.roles):
            for place, queue in enumerate(binding.queues or ()):
                if queues is not None and queue not in queues:
                    at: Path = ("spec", "roles", index, "queues", place)
                    fix = did_you_mean(queue, queues)
                    yield access.problem(at, "unknown-queue", f"there is no Queue {queue}", fix)


def _issuer_problems(access: Declaration[AccessPolicy]) -> Iterator[Problem]:
    first: dict[tuple[str, str], int] = {}
    places: set[str] = set()
    for index, issuer in enumerate(access.value.identity.oidc):
        at: Path = ("spec", "identity", "oidc", index)
        if first.setdefault((issuer.issuer, issuer.audience), index) != index:
            message = f"the issuer {issuer.issuer} is listed twice for the same audience"
            yield access.problem((*at, "issuer"), "duplicate-issuer", message, "Delete one of them.")
        for key, url in (("issuer", issuer.issuer), ("jwksUrl", issuer.jwks_url)):
            if url and not is_safe_url(url):
                message = "a host in between could sign tokens: it is no https URL"
                fix = "Write it as https://HOST/...; http is for loopback alone."
                yield access.problem((*at, key), "insecure-issuer", message, fix)
        if issuer.client_id:
            if issuer.place in places:
                message = f"the console has a client at {issuer.place} already"
                yield access.problem((*at, "clientId"), "second-client", message, "Leave one clientId out.")
            places.add(issuer.place)
        if issuer.session_duration is not None and issuer.session_duration > SESSION_MAX:
            message = f"a session of the console lasts {SESSION_MAX} at most"
            yield access.problem((*at, "sessionDuration"), "out-of-range", message, f"Write {SESSION_MAX} or less.")


def _commit_problems(access: Declaration[AccessPolicy]) -> Iterator[Problem]:
    """Of one AccessPolicy."""
    commits = access.value.commits
    if commits.signatures == "required" and not commits.signers:
        message = "signatures are required, and no signer is listed: no change would ever be applied again"
        yield access.problem((*_COMMITS, "signatures"), "no-signers", message, "List signers.")
    names: set[str] = set()
    for key, listed in (("signers", commits.signers), ("forgeKeys", commits.forge_keys)):
        for index, signer in enumerate(listed):
            at = (*_COMMITS, key, index)
            if signer.name in names:
                message = f"{signer.name} is listed twice"
                yield access.problem((*at, "name"), "duplicate-signer", message, "Name each key differently.")
            names.add(signer.name)
            yield from _key_problems(access, signer, at)


def _key_problems(access: Declaration[AccessPolicy], signer: Signer, at: Path) -> Iterator[Problem]:
    if bool(signer.ssh) == bool(signer.openpgp):
        message = f"{signer.name} has {'two keys' if signer.ssh else 'no key'}"
        yield access.problem(at, "one-key", message, "Write either ssh or openpgp; list a person with two keys twice.")
        return
    try:
        if signer.ssh:
            ssh_public_key(signer.ssh)
        else:
            openpgp_public_key(signer.openpgp)
    except UnfitKeyError as error:
        yield access.problem((*at, "ssh" if signer.ssh else "openpgp"), "unfit-key", str(error), error.fix)
