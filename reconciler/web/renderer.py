"""Templates (Jinja2) that escape whatever they are given: those of the console, and of the pages that stand alone."""

from __future__ import annotations

from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from reconciler.analysis.reports.plain_text import one_line


def rendered(template: str, /, **values: Any) -> str:
    """A template with its values. A value that it names and is not given raises UndefinedError."""
    return _TEMPLATES.get_template(template).render(**values)


def _gpus(milli: int | None) -> str:
    """Thousandths of GPUs as people write them; a dash for no limit."""
    return "\N{EN DASH}" if milli is None else f"{milli / 1000:,.3f}".rstrip("0").rstrip(".")


_TEMPLATES: Final = Environment(
    loader=PackageLoader("reconciler.web"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters["gpus"] = _gpus
_TEMPLATES.filters["count"] = lambda number: f"{number:,}"
_TEMPLATES.filters["plain"] = one_line
