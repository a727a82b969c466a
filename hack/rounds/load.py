"""Work beside a round that wants every core, so that what holds on an idle machine is tried on a busy one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

# One whose parent has gone ends by itself.
_HOG = "import os, sys\nwhile os.getppid() == int(sys.argv[1]): sum(range(100_000))"


@contextmanager
def busy(hogs: int) -> Iterator[None]:
    """So many processes compute until the block ends."""
    with ExitStack() as ending:
        for _ in range(hogs):
            hog = ending.enter_context(subprocess.Popen([sys.executable, "-c", _HOG, str(os.getpid())]))
            ending.callback(hog.kill)
        yield
