"""How far apart the tasks of a gang lie, told so that a person can see why they talk slowly."""

from __future__ import annotations

from solver.model.cluster import Level
from solver.model.document import Document


class Extent(Document, frozen=True):
    """The tasks lie in `domains` domains of `level`: the closest one that the job prefers, else the next closer than `within`.

    They are together in `domain`, the closest that has them all, of level `within` (None: not even in one pool).
    `missed`: the levels that the job prefers and at which its tasks are not together, the closest first.
    """

    level: Level
    domains: int
    within: Level | None = None
    domain: str = ""
    missed: tuple[Level, ...] = ()

    def __str__(self) -> str:
        if self.domains == 1:
            return f"in one {self.within}, {self.domain}"
        whole = f" of {self.within} {self.domain}" if self.within else ""
        where = f"over {self.domains} {self.level}s{whole}"
        return f"{where}; it prefers one {' and one '.join(self.missed)}" if self.missed else where
