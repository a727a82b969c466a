"""The mutants: what each changes in which file, why that is wrong, and which tests should catch it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

ROOT: Final = Path(__file__).parents[2]
LISTS: Final = Path(__file__).parent


class Mutant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One change. `old` stands once in `file`; `new` takes its place. `why`: what goes wrong by it.

    `tests`: files of the suites that CI runs, or single tests where a file takes long: `FILE::NAME`. `survives`: why none of them
    can catch it; "": they do.
    """

    name: str
    file: str
    old: str
    new: str
    why: str
    tests: tuple[str, ...]
    survives: str = ""


def mutants(folder: Path = LISTS) -> dict[str, Sequence[Mutant]]:
    """By area, which is the name of its list."""
    return {
        path.stem: msgspec.yaml.decode(path.read_bytes(), type=list[Mutant]) for path in sorted(folder.glob("*.yaml"))
    }


def mutated(mutant: Mutant, text: str) -> str:
    """The text of its file with the mutant in it. Raises ValueError where `old` does not stand in it once."""
    found = text.count(mutant.old)
    if found != 1:
        raise ValueError(f"{mutant.name}: its `old` stands {found} times in {mutant.file}; make it stand there once")
    return text.replace(mutant.old, mutant.new)


def problems(mutant: Mutant, root: Path = ROOT) -> Iterator[str]:
    """What is wrong with an entry, found without running anything."""
    file = root / mutant.file
    if not file.is_file():
        yield f"{mutant.name}: there is no {mutant.file}"
        return
    try:
        text = mutated(mutant, file.read_text())
    except ValueError as error:
        yield str(error)
        return
    if mutant.old == mutant.new:
        yield f"{mutant.name}: changes nothing"
    if file.suffix == ".py":
        try:
            compile(text, mutant.file, "exec", dont_inherit=True)
        except SyntaxError as error:
            yield f"{mutant.name}: {mutant.file} can't be read with it: {error}"
    if not mutant.why or not mutant.tests:
        yield f"{mutant.name}: says not why it is wrong, or names no tests"
    yield from (f"{mutant.name}: there are no tests {test}" for test in mutant.tests if not _is_there(root, test))


def _is_there(root: Path, test: str) -> bool:
    """Of a file, or of one function in it: `FILE::NAME`."""
    name, _, function = test.partition("::")
    file = root / name
    return file.is_file() and (not function or f"def {function}(" in file.read_text())
