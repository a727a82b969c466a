"""`python -m tests.solver.laws`: judges random tiny worlds and prints what is wrong, the smallest worlds of each kind first."""

from __future__ import annotations

import argparse
import time
from collections import defaultdict

from tests.solver.laws.faults import fault_lines
from tests.solver.laws.generator import drawn
from tests.solver.laws.judge import KINDS, Finding, greedy, judged, production
from tests.solver.laws.loop import Course, course_lines
from tests.solver.laws.twins import STATEMENTS, twin_lines
from tests.solver.laws.worlds import text_of

Case = tuple[int, Course, list[Finding]]


def main() -> None:
    """Judge, count, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.solver.laws", description=__doc__)
    parser.add_argument("--worlds", type=int, default=300, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the number of the first")
    parser.add_argument("--seed", type=int, default=0, help="of which series")
    parser.add_argument("--kind", choices=sorted(KINDS), help="only this kind of finding")
    parser.add_argument("--show", type=int, default=2, help="worlds printed of each kind")
    parser.add_argument("--parts", action="store_true", help="worlds in which some jobs ask for parts of GPUs")
    parser.add_argument(
        "--strewn", action="store_true", help="worlds with parts of GPUs all over, and larger jobs that wait"
    )
    parser.add_argument("--faults", action="store_true", help="in place of random worlds those of known faults")
    parser.add_argument("--greedy", action="store_true", help="rounds without the integer program")
    parser.add_argument(
        "--twins", choices=STATEMENTS, help="in place of worlds twins, which state one need in two ways"
    )
    said = parser.parse_args()
    decide = greedy if said.greedy else production
    if said.twins:
        print("\n".join(twin_lines(said.twins, range(said.first, said.first + said.worlds), decide, said.show)))
        return
    if said.faults:
        print("\n".join(fault_lines(decide)))
        return
    began, cases, rounds = time.monotonic(), defaultdict[str, list[Case]](list), 0
    for number in range(said.first, said.first + said.worlds):
        world = drawn(number, said.seed, parts=said.parts, strewn=said.strewn)
        course, found = judged(world, decide)
        rounds += len(course.rounds)
        for kind in {finding.kind for finding in found}:
            cases[kind].append((number, course, [finding for finding in found if finding.kind == kind]))
    wrong = {number for known in cases.values() for number, _, _ in known}
    spent = time.monotonic() - began
    print(
        f"{said.worlds} worlds, {rounds} rounds in which something changes, {spent:.0f} s; {len(wrong)} worlds with findings"
    )
    for kind, meaning in KINDS.items():
        print(f"{len(cases[kind]):6}  {kind:20}{meaning}")
    for kind in [said.kind] if said.kind else KINDS:
        smallest = sorted(cases[kind], key=_size)[: said.show]
        for case in smallest:
            print("\n".join(["", *_lines(case)]))


def _size(case: Case) -> tuple[int, int, int]:
    snapshot = case[1].world.snapshot
    return len(snapshot.jobs), sum(len(node.gpus) for node in snapshot.nodes), case[0]


def _lines(case: Case) -> list[str]:
    number, course, found = case
    return [f"# world {number}", text_of(course.world), *course_lines(course), *[f"  ! {finding}" for finding in found]]


if __name__ == "__main__":
    main()
