"""Rows of a statement as a Parquet file: exact decimals, null for what is not known, and of which window they are.

`pyarrow` is large, and of the extra `quorate[parquet]`: it is imported where a file is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from reconciler.analysis.showback.statement import ShowbackRow

_DIGITS_MAX: Final = 38
_SECONDS_DECIMALS: Final = 6
"""A thousandth of a GPU for a millisecond is a millionth of a GPU-second."""
_COST_DECIMALS: Final = 15
"""Hours have nine, prices six."""
_TEXTS: Final = ("name", "queue", "user")


class ParquetUnavailableError(Exception):
    """What writes Parquet files is not installed."""


def parquet_of(rows: Sequence[ShowbackRow], told: Mapping[str, str]) -> bytes:
    """A file with the rows' fields as columns. `told`: of the whole statement, kept with the schema as `quorate.NAME`.

    Raises ParquetUnavailableError.
    """
    arrow, parquet = _library()
    columns = ShowbackRow.__struct_fields__
    kept = {f"quorate.{name}": value for name, value in told.items()}
    schema = arrow.schema([(name, _type_of(arrow, name)) for name in columns], metadata=kept)
    table = arrow.Table.from_pydict({name: [getattr(row, name) for row in rows] for name in columns}, schema)
    into = arrow.BufferOutputStream()
    parquet.write_table(table, into)
    return bytes(into.getvalue())


def _library() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError as error:
        raise ParquetUnavailableError(f"{error.name} is not installed") from error
    return pyarrow, parquet


def _type_of(arrow: Any, column: str) -> Any:
    if column in _TEXTS:
        return arrow.string()
    if column == "redacted":
        return arrow.bool_()
    return arrow.decimal128(_DIGITS_MAX, _COST_DECIMALS if column == "cost" else _SECONDS_DECIMALS)
