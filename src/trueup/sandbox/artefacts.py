"""Files that a candidate wrote, read as data and never as programs.

`.npy` without pickle, `.csv`, `.json`, `.txt`; anything else stays bytes. The header of an array is checked
against the file's size before a byte of it is allocated: a header may claim 2**60 rows.
"""

from __future__ import annotations

import csv
import io
import json
import math
from typing import Any

import numpy as np

__all__ = ["ArtefactError", "parse"]

_NPY_MAGIC = b"\x93NUMPY"


class ArtefactError(Exception):
    """The file is not what its name says."""


def parse(name: str, content: bytes) -> Any:
    """The content of a file by its ending: an array, rows of strings, plain JSON data, text, or bytes."""
    try:
        if name.endswith(".npy"):
            return _npy(content)
        if name.endswith(".csv"):
            return list(csv.reader(io.StringIO(content.decode("utf-8"), newline="")))
        if name.endswith(".json"):
            return json.loads(content.decode("utf-8"))
        if name.endswith(".txt"):
            return content.decode("utf-8")
    except (
        ValueError,
        TypeError,
        RecursionError,
        csv.Error,
        SyntaxError,
        MemoryError,
        OverflowError,
    ) as error:
        raise ArtefactError(f"cannot be read: {str(error)[:120]}") from None
    return content


def _npy(content: bytes) -> Any:
    if not content.startswith(_NPY_MAGIC):
        raise ArtefactError("is not an .npy file")
    stream = io.BytesIO(content)
    version = np.lib.format.read_magic(stream)
    read_header = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)
    if read_header is None:
        raise ArtefactError(f"has the unknown format version {version}")
    shape, fortran, kind = read_header(stream)
    if kind.hasobject:
        raise ArtefactError("holds pickled objects")
    body = content[stream.tell() :]
    if any(side < 0 for side in shape) or math.prod(shape) * kind.itemsize != len(body):
        raise ArtefactError(f"claims shape {shape} of {kind} but holds {len(body)} bytes")
    flat = np.frombuffer(body, dtype=kind)
    return flat.reshape(shape, order="F" if fortran else "C")
