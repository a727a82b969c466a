"""A HiGHS that prints nothing: what a command prints, and what a child answers, is on standard output."""

from __future__ import annotations

import highspy


class QuietHighs(highspy.Highs):
    """From 1.16 on HiGHS prints who it is once its callbacks are set, which `highspy.Highs()` does before it can be told not to."""

    def enableCallbacks(self) -> None:  # noqa: N802  # by that name HiGHS calls it
        """As before, once it has been told."""
        self.setOptionValue("output_flag", False)
        super().enableCallbacks()
