"""Parquet, behind the extra `parquet`: the only file that imports pyarrow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from trueup.errors import DataError, MissingExtraError

__all__ = ["read_columns", "write_rows"]

_BATCH = 50_000


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingExtraError("Parquet", "parquet", "pyarrow") from None
    return pa, pq


def write_rows(path: Path, names: Sequence[str], kinds: Sequence[type], rows: Iterable[Sequence[Any]]) -> int:
    """Write rows with columns of the given kinds (int, float, str); None is null. Returns how many."""
    pa, pq = _pyarrow()
    types = {int: pa.int64(), float: pa.float64(), str: pa.string()}
    schema = pa.schema([(name, types[kind]) for name, kind in zip(names, kinds, strict=True)])
    n, stream = 0, iter(rows)
    with pq.ParquetWriter(path, schema) as writer:
        while batch := list(islice(stream, _BATCH)):
            columns = [list(column) for column in zip(*batch, strict=True)]
            arrays = [pa.array(c, t) for c, t in zip(columns, schema.types, strict=True)]
            writer.write_table(pa.table(arrays, schema=schema))
            n += len(batch)
    return n


def read_columns(path: Path, wanted: Sequence[str] | None = None) -> dict[str, list[Any]]:
    """Column name → Python values, null as None. Columns that the file lacks are left out."""
    pa, pq = _pyarrow()
    try:
        file = pq.ParquetFile(path)
        names = [n for n in file.schema_arrow.names if wanted is None or n in wanted]
        table = file.read(columns=names)
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{path} must be a Parquet file, and could not be read as one: {error}.") from error
    return {name: table.column(name).to_pylist() for name in names}
