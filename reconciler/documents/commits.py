"""What is wrong with the `commits` of an AccessPolicy: keys that are none, names twice, nobody who could sign."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.access.commits import Signer
from reconciler.access.policy import AccessPolicy
from reconciler.access.signing_keys import UnfitKeyError, openpgp_public_key, ssh_public_key
from reconciler.documents.declarations import Declaration
from reconciler.model.problem import Path, Problem

_AT: Path = ("spec", "commits")


def commit_problems(access: Declaration[AccessPolicy]) -> Iterator[Problem]:
    """Of one AccessPolicy."""
    commits = access.value.commits
    if commits.signatures == "required" and not commits.signers:
        message = "signatures are required, and nobody is listed who could sign: no change would ever be applied again"
        yield access.problem((*_AT, "signatures"), "no-signers", message, "List signers.")
    names: set[str] = set()
    for key, listed in (("signers", commits.signers), ("forgeKeys", commits.forge_keys)):
        for index, signer in enumerate(listed):
            at = (*_AT, key, index)
            if signer.name in names:
                message = f"{signer.name} is listed twice"
                yield access.problem((*at, "name"), "duplicate-signer", message, "Name each key differently.")
            names.add(signer.name)
            yield from _key_problems(access, signer, at)


def _key_problems(access: Declaration[AccessPolicy], signer: Signer, at: Path) -> Iterator[Problem]:
    if bool(signer.ssh) == bool(signer.openpgp):
        message = f"{signer.name} has {'two keys' if signer.ssh else 'no key'}"
        yield access.problem(at, "one-key", message, "Write either ssh or openpgp; list a person twice who has two.")
        return
    try:
        if signer.ssh:
            ssh_public_key(signer.ssh)
        else:
            openpgp_public_key(signer.openpgp)
    except UnfitKeyError as error:
        yield access.problem((*at, "ssh" if signer.ssh else "openpgp"), "unfit-key", str(error), error.fix)
