"""Under which address browsers find a server: what is taken for one, and in which form."""

from __future__ import annotations

import pytest

from reconciler.model.urls import external_origin


@pytest.mark.parametrize(
    ("written", "origin"),
    [
        ("https://quorate.example", "https://quorate.example"),
        ("https://Quorate.Example:443/", "https://quorate.example"),
        ("https://quorate.example:8443", "https://quorate.example:8443"),
        ("http://127.0.0.1:80", "http://127.0.0.1"),
        ("http://localhost:7717", "http://localhost:7717"),
        ("https://[2001:DB8::1]:443", "https://[2001:db8::1]"),
    ],
)
def test_an_address_is_written_as_browsers_write_it(written: str, origin: str) -> None:
    assert external_origin(written) == origin


@pytest.mark.parametrize(
    "written",
    [
        "", "quorate.example", "ftp://quorate.example", "https://", "https://u:p@quorate.example", "https://quorate.example/x",
        "https://quorate.example?x", "https://quorate.example#x", "http://quorate.example", "https://quorate.example:x",
        "https://[broken",
    ],
)  # fmt: skip
def test_anything_else_is_none(written: str) -> None:
    with pytest.raises(ValueError, match=r"expected|needs|[Pp]ort|URL"):
        external_origin(written)
