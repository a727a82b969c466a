"""Asks of a revision that no user alone changed what needs two people: the guardrail `fourEyes` of the policy in force.

A commit's author is what it says. That is worth as much as its signature, so it is asked for beside signatures.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from reconciler.gitops.source.mirror import GitMirror, Step
from reconciler.gitops.source.requirements import RevisionCandidate, RevisionHold, by_admin


@dataclass(frozen=True, slots=True)
class FourEyes:
    """The requirement. Each step of the branch's own line is judged: its committer beside the authors of what it brings."""

    mirror: GitMirror
    doing: str = "Verifying"

    def hold(self, candidate: RevisionCandidate) -> RevisionHold | None:
        """ChangedAlone. Raises GitSourceError."""
        patterns = candidate.in_force.policy.scheduling.guardrails.four_eyes if candidate.in_force else ()
        if not patterns or candidate.applied is None:
            return None
        watched = FilePatterns(patterns)
        for step in self.mirror.line(candidate.commit, candidate.applied):
            message = self._alone(step, watched)
            if message:
                accept = f"Let another merge it; or {by_admin(candidate.commit)}."
                return RevisionHold("ChangedAlone", f"{message}. {accept}", acceptable=True)
        return None

    def _alone(self, step: Step, watched: FilePatterns) -> str:
        paths = [path for path in self.mirror.changed(step) if path in watched]
        if not paths:
            return ""
        committer, authors = self.mirror.people(step, paths)
        if committer not in authors:
            return ""
        return f"{step.commit[:12]} changes {paths[0]}, which needs two people, and {committer} both wrote and committed it"


class FilePatterns:
    """Files by patterns: `*` is any part of a name, `**` any folders."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._expression = re.compile("|".join(map(_expression, patterns)), re.DOTALL)

    def __contains__(self, path: str) -> bool:
        return self._expression.fullmatch(path) is not None


_WILD = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*"}


def _expression(pattern: str) -> str:
    return "".join(_WILD.get(part, re.escape(part)) for part in re.split(r"(\*\*/|\*\*|\*)", pattern))
