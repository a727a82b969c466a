"""Which authority signs and which are trusted, by their age alone: so one follows the other without a step by hand. Pure.

A new root is first only trusted: within one life of a certificate every agent is given it with its next certificate. Then it signs.
The one before it stays trusted for as long as a certificate that it signed can still be good.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cryptography import x509

from reconciler.backends.baremetal.certificates import LIFE, Key, made_at
from solver.model.quantities import Instant


class Root(NamedTuple):
    """An authority: its certificate, and the key that it signs with."""

    certificate: x509.Certificate
    key: Key


class SigningRoots(NamedTuple):
    """`trusted`: the one that signs is the first of them."""

    signing: Root
    trusted: tuple[x509.Certificate, ...]


def signing_roots(roots: Sequence[Root], now: Instant) -> SigningRoots:
    """How one or more roots stand."""
    ordered = sorted(roots, key=lambda root: made_at(root.certificate))
    known_everywhere = [root for root in ordered if made_at(root.certificate).after(LIFE) <= now]
    signing = known_everywhere[-1] if known_everywhere else ordered[0]
    trusted = [root for root in roots_in_use(ordered, now) if root is not signing]
    return SigningRoots(signing, (signing.certificate, *(root.certificate for root in trusted)))


def roots_in_use(roots: Sequence[Root], now: Instant) -> list[Root]:
    """Without those that have no good certificates any more, the oldest first."""
    ordered = sorted(roots, key=lambda root: made_at(root.certificate))
    over = sum(made_at(follower.certificate).after(2 * LIFE) <= now for follower in ordered[1:])
    return ordered[over:]
