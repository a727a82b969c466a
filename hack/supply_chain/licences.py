"""The licence of each package that Quorate runs on, as an SPDX expression, and whether it is one of those that are allowed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from license_expression import ExpressionError, LicenseExpression, get_spdx_licensing

from hack.supply_chain.packages import Package
from hack.supply_chain.problem import ProblemError

ALLOWED: Final = frozenset(
    {
        *("0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "MIT-0", "PSF-2.0", "Zlib"),
        "MPL-2.0",  # holds for the files that are under it, which are shipped unchanged
    }
)
ALLOWED_FOR: Final = {"psycopg": {"LGPL-3.0-only"}, "psycopg-binary": {"LGPL-3.0-only"}}
"""Whoever gets them may exchange them: they are imported as packages of their own, never copied into ours, and optional."""
READ_IN_THEIR_FILES: Final = {
    "aiosignal": "Apache-2.0",
    "gitdb": "BSD-3-Clause",
    "jinja2": "BSD-3-Clause",
    "markdown-it-py": "MIT",
    "mdurl": "MIT",
    "nvidia-ml-py": "BSD-3-Clause",
}
"""Those whose metadata say no SPDX identifier, with what their licence file is (2026-11-29)."""

_SPDX: Final = get_spdx_licensing()


def licence_of(package: Package) -> str:
    """An SPDX expression. Raises ProblemError where the package does not state one."""
    told = package.stated
    stated = [text for key in ("License-Expression", "License") for text in told.get_all(key) or ()]
    for text in (*stated, READ_IN_THEIR_FILES.get(package.name, "")):
        expression = _read(text)
        if expression is not None:
            return str(expression)
    fix = "Read its licence file, and add what it is to READ_IN_THEIR_FILES of hack/supply_chain/licences.py."
    raise ProblemError(package.name, "its metadata name no licence of SPDX's", fix)


def objections(packages: Iterable[Package]) -> Iterator[ProblemError]:
    """Every package that may not be shipped, or of which nobody knows under what licence it is."""
    for package in packages:
        try:
            licence = licence_of(package)
        except ProblemError as error:
            yield error
            continue
        if not allows(ALLOWED | ALLOWED_FOR.get(package.name, set()), licence):
            fix = "Do without it, or say in hack/supply_chain/licences.py why it may be shipped."
            yield ProblemError(f"{package.name} {package.version}", f"{licence} is not allowed", fix)


def allows(allowed: Iterable[str], licence: str) -> bool:
    """Whether one may keep to allowed licences alone: of `A OR B` one is enough, of `A AND B` all are needed."""
    known = set(allowed)

    def holds(part: LicenseExpression) -> bool:
        if part.isliteral:
            return str(part) in known
        every = part.operator.strip() == "AND"
        return (all if every else any)(holds(each) for each in part.args)

    return holds(_SPDX.parse(licence))


def _read(text: str) -> LicenseExpression | None:
    try:
        return _SPDX.parse(text, validate=True)
    except ExpressionError:
        return None
