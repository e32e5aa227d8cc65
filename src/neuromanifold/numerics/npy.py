"""NumPy's array format read with its claims checked first: no code, no objects, no more memory than the file has bytes."""

from tokenize import TokenError
from typing import Any

import numpy as np

_KINDS = "fiubc"
_LONGEST_HEADER = 10_000


def read_npy(file: Any, size: int, *, strings: bool = False) -> np.ndarray:
    """The array in a stream of `size` bytes; a ValueError says in half a sentence what is wrong.

    >>> import io
    >>> stream = io.BytesIO()
    >>> np.save(stream, np.arange(3.0))
    >>> read_npy(io.BytesIO(stream.getvalue()), len(stream.getvalue())).tolist()
    [0.0, 1.0, 2.0]
    """
    shape, fortran, dtype = _header(file)
    if dtype.hasobject or dtype.kind not in (_KINDS + "U" if strings else _KINDS):
        raise ValueError(f"it holds dtype {dtype}, not numbers")
    count = 1
    for length in shape:
        count *= length  # Python's integers do not overflow
    claimed, there = count * dtype.itemsize, size - file.tell()
    if claimed != there:
        raise ValueError(f"it claims shape {_shown(shape)} of {dtype}, {claimed} bytes, and holds {there}")
    a = np.frombuffer(file.read(there), dtype).reshape(shape, order="F" if fortran else "C")
    return a.copy() if a.flags.c_contiguous else np.ascontiguousarray(a)


def _header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype]:
    readers: dict[Any, Any] = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    version = np.lib.format.read_magic(file)
    if version not in readers:
        raise ValueError(f"its format version is {version}, and (1, 0) or (2, 0) is needed")
    try:
        shape, fortran, dtype = readers[version](file, max_header_size=_LONGEST_HEADER)
    except (ValueError, TypeError, SyntaxError, TokenError, RecursionError, MemoryError) as error:
        raise ValueError(f"its header cannot be read: {str(error).splitlines()[0][:200]}") from None
    if any(length < 0 for length in shape):
        raise ValueError(f"it claims shape {_shown(shape)}")
    return shape, fortran, dtype


def _shown(shape: tuple[int, ...]) -> str:
    return str(shape) if len(shape) < 9 else f"({', '.join(map(str, shape[:8]))}, … {len(shape)} axes)"
