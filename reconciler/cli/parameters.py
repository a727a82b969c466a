"""Options whose values are quantities: read as documents read them, so that `10m` means the same everywhere."""

from __future__ import annotations

import click

from solver.world.quantities import Duration


class DurationParam(click.ParamType[Duration]):
    """A duration such as 30s or 1h30m."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Duration:
        """Read it; a usage error where it is none."""
        try:
            return Duration.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
