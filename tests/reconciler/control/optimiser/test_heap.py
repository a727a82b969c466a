"""Memory that a round does not use any more is the system's again."""

from __future__ import annotations

import subprocess
import sys

import pytest

ARRAYS = 2_000
"""Of 64 KiB each: small enough for the C library to keep them."""

SCRIPT = f"""
import numpy as np
from reconciler.control.optimiser.heap import give_back

def resident_kib():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmRSS"))

before = resident_kib()
arrays = [np.ones(8_192) for _ in range({ARRAYS})]
last = arrays[-1]
del arrays
kept = resident_kib()
give_back()
print(kept - before, resident_kib() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems say otherwise what a process has")
def test_what_is_free_is_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    kept, left = map(int, done.stdout.split())
    assert kept > 0.9 * 64 * ARRAYS
    assert left < 0.1 * kept
