"""Known advisories against the packages that Quorate runs on, as pip-audit finds them, and whether it could ask anybody."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from hack.image_lock import RUN

LIMIT_S = 120


class Audit(NamedTuple):
    """`found`: NAME VERSION: ID each. `asked`: of how many packages an answer came; `unasked`: why not of all, "" if of all."""

    found: tuple[str, ...]
    asked: int
    unasked: str


def audited(arguments: Sequence[str] = ()) -> Audit:
    """Ask for each locked package. A package that nobody answered for is never taken for one without advisories."""
    options = ["--no-deps", "--disable-pip", "--require-hashes", "--progress-spinner=off", "--format=json"]
    command = [sys.executable, "-m", "pip_audit", *options, *arguments, "--requirement", str(RUN)]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return Audit((), 0, f"pip-audit did not answer in {LIMIT_S} s")
    return read(ran.stdout, ran.stderr)


def read(output: str, errors: str = "") -> Audit:
    """What pip-audit printed, in its JSON."""
    try:
        packages: list[dict[str, Any]] = json.loads(output)["dependencies"]
    except (ValueError, KeyError, TypeError):
        said = errors.strip().splitlines()
        return Audit((), 0, said[-1] if said else "pip-audit said nothing")
    found = tuple(
        f"{each['name']} {each['version']}: {each_found['id']}"
        + (f", fixed in {', '.join(each_found['fix_versions'])}" if each_found["fix_versions"] else ", without a fix")
        for each in packages
        for each_found in each.get("vulns", ())
    )
    skipped = [each["skip_reason"] for each in packages if "skip_reason" in each]
    nothing = "" if packages else "pip-audit looked at no package"
    return Audit(found, len(packages) - len(skipped), skipped[0] if skipped else nothing)
