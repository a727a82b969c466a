"""Exit codes. They are frozen: scripts and CI depend on them, so none is ever renumbered or given a second meaning."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What the exit status of `quorate` says."""

    OK = 0
    ERROR = 1
    CHANGES = 2
    """Only with --detailed-exitcode: the plan is not empty."""
    POLICY_INVALID = 3
    STALE_PLAN = 4
    GUARDRAIL_REFUSED = 5
    NOT_AUTHORISED = 6
    WAIT_TIMED_OUT = 7
    SERVER_UNREACHABLE = 8
    AUDIT_BROKEN = 9
    """The audit chain is not whole, or is not what an anchor has seen."""
    USAGE = 64
    """The command line itself is wrong. Not 2, as click would have it: that is CHANGES."""
    INTERRUPTED = 130
    """By Ctrl-C. What a shell says of a command that SIGINT has ended."""
