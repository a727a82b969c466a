"""Real keys, those of the hostile corpus, and what a test needs to make some."""

from __future__ import annotations

import shutil

import pytest

from hack.hostile.keys import GpgKey, SshKey, commit, replaced, stripped

__all__ = ["GpgKey", "SshKey", "commit", "needs_gpg", "needs_ssh", "replaced", "stripped"]

needs_ssh = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")
needs_gpg = pytest.mark.skipif(shutil.which("gpg") is None, reason="gpg is not installed")
