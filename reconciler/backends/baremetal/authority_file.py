"""The file of the authority that signs certificates of nodes: its key and certificate, and those of one that follows it."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cryptography import x509

from reconciler.access.secret_file import SecretFile
from reconciler.backends.baremetal.certificates import CertificateError, key_pem, new_key, new_root, pem_of, read_key
from reconciler.backends.baremetal.key_files import KeyFileError, read_private, write_private
from reconciler.backends.baremetal.roots import Root, roots_in_use
from solver.model.quantities import Instant

_BLOCK: Final = re.compile(rb"-----BEGIN ([A-Z ]+)-----.+?-----END \1-----\n?", re.DOTALL)


class AuthorityFile:
    """Reads the file anew whenever it has changed. Control planes that stand in for each other have the same one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.source = SecretFile(path, _parsed, KeyFileError)

    def make(self, now: Instant) -> None:
        """Write a file with a fresh authority, unless there is one. Raises KeyFileError."""
        with self._alone():
            if not self.path.exists():
                self._write([_fresh(now)])

    def rotate(self, now: Instant) -> Sequence[Root]:
        """Add a fresh authority, which follows the newest, and drop those that are over. Raises KeyFileError.

        It signs from one life of a certificate on: until then agents learn of it.
        """
        with self._alone():
            roots = [*roots_in_use(_parsed(self.path), now), _fresh(now)]
            self._write(roots)
        return roots

    def roots(self) -> Sequence[Root]:
        """All that are in it; those of before, while it can't be used. Raises KeyFileError."""
        return self.source()

    def _write(self, roots: Sequence[Root]) -> None:
        write_private(self.path, b"".join(key_pem(root.key) + pem_of(root.certificate) for root in roots))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Two writers at once come one after the other."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise KeyFileError(f"{self.path.parent}: can't be used: {error.strerror}") from error
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)


def blocks(pem: bytes) -> Iterator[tuple[str, bytes]]:
    """What a file of PEM has in it: the kind (`CERTIFICATE`) and the whole of each."""
    return ((match[1].decode(), match[0]) for match in _BLOCK.finditer(pem))


def _parsed(path: Path) -> tuple[Root, ...]:
    """Raises KeyFileError."""
    content = read_private(path)
    try:
        roots, problem = tuple(_roots(content)), "there is no authority in it"
    except (ValueError, CertificateError) as error:
        roots, problem = (), str(error)
    if not roots:
        raise KeyFileError(f"{path}: {problem}. Restore the file from a backup")
    return roots


def _fresh(now: Instant) -> Root:
    key = new_key()
    return Root(new_root(key, now), key)


def _roots(content: bytes) -> Iterator[Root]:
    """Each key, and behind it its certificate. Raises ValueError, CertificateError."""
    key = None
    for kind, block in blocks(content):
        if kind != "CERTIFICATE":
            key = read_key(block)
            continue
        certificate = x509.load_pem_x509_certificate(block)
        if key is None or certificate.public_key() != key.public_key():
            raise CertificateError("a certificate does not follow the key that it is for")
        yield Root(certificate, key)
