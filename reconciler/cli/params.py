"""Types of options that several commands share."""

from __future__ import annotations

import click

from solver.world.quantities import Duration


class DurationParam(click.ParamType[Duration]):
    """A positive span such as 5s or 1h30m."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Duration:
        """Read it; a usage error where it is none."""
        if isinstance(value, Duration):
            return value
        try:
            span = Duration.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return span if span > 0 else self.fail("it must be longer than 0s", param, ctx)
