"""Templates (Jinja2) that escape whatever they are given: those of the console, and of the pages that stand alone."""

from __future__ import annotations

import re
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from reconciler.analysis.reports.plain_text import one_line


def rendered(template: str, /, **values: Any) -> str:
    """A template with its values. A value that it names and is not given raises UndefinedError."""
    return _TEMPLATES.get_template(template).render(**values)


def _gpus(milli: int | None) -> str:
    """Thousandths of GPUs as people write them; a dash for no limit."""
    return "\N{EN DASH}" if milli is None else f"{milli / 1000:,.3f}".rstrip("0").rstrip(".")


def with_times(text: object) -> Markup:
    """A sentence in which moments are elements of their own: the page tells them in the reader's time zone."""
    escaped = str(escape(text))
    return Markup(_MOMENT.sub(lambda found: f"<time>{found[0]}</time>", escaped))  # noqa: S704  (it was escaped)


_MOMENT: Final = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?Z\b", re.ASCII)
"""As Instants are written."""

_TEMPLATES: Final = Environment(
    loader=PackageLoader("reconciler.web"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters["gpus"] = _gpus
_TEMPLATES.filters["count"] = lambda number: f"{number:,}"
_TEMPLATES.filters["times"] = with_times
_TEMPLATES.filters["plain"] = one_line
