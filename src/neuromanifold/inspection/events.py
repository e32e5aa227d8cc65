"""TensorBoard's event files: records of a length, a message of three fields and their checksums,
written by hand.

TensorBoard itself is not needed to write what it reads: a record is length (8 bytes), masked
CRC-32C of it, message, masked CRC-32C of that; the message is `Event {1: wall_time, 2: step, 5:
Summary {1: Value {1: tag, 2: simple_value}}}`.
"""

import os
import struct
import time
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from neuromanifold.runtime.files import room_for

_POLYNOMIAL = 0x82F63B78
_DOUBLE, _VARINT, _BYTES, _FLOAT = 1, 0, 2, 5


def write_events(folder: str | Path, records: Iterable[tuple[int, Mapping[str, float]]]) -> Path:
    """One event file in `folder` with a scalar for each (step, name, value); what is already
    there stays.
    """
    path = new_file(folder)
    for step, scalars in records:
        append(path, step, scalars)
    return path


def new_file(folder: str | Path) -> Path:
    """A new event file with the message that must come first."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    path = (
        folder
        / f"events.out.tfevents.{time.time_ns() // 10**9:010d}.neuromanifold.{os.getpid()}.{time.time_ns()}"
    )
    with room_for(path):
        path.write_bytes(_record(_double(1, time.time()) + _field(3, b"brain.Event:2")))
    return path


def append(path: Path, step: int, scalars: Mapping[str, float]) -> None:
    """The scalars of one step at the end of the file."""
    values = b"".join(
        _field(1, _field(1, tag.encode()) + _float(2, value)) for tag, value in scalars.items()
    )
    event = _double(1, time.time()) + _key(2, _VARINT) + _varint(step) + _field(5, values)
    size = path.stat().st_size
    with room_for(path):
        try:
            with path.open("ab") as file:
                file.write(_record(event))
        except OSError:  # half a record would hide what comes behind it
            os.truncate(path, size)
            raise


def _record(message: bytes) -> bytes:
    length = struct.pack("<Q", len(message))
    return length + _checksum(length) + message + _checksum(message)


def _checksum(data: bytes) -> bytes:
    """CRC-32C, rotated and shifted as TFRecord wants it."""
    crc = crc32c(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def crc32c(data: bytes) -> int:
    """The checksum of Castagnoli's polynomial.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    crc, table = 0xFFFFFFFF, _table()
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


@cache
def _table() -> tuple[int, ...]:
    def entry(crc: int) -> int:
        for _ in range(8):
            crc = crc >> 1 ^ _POLYNOMIAL * (crc & 1)
        return crc

    return tuple(map(entry, range(256)))


def _key(field: int, kind: int) -> bytes:
    return bytes([field << 3 | kind])


def _varint(n: int) -> bytes:
    """Seven bits a byte, lowest first; a negative number as its 64-bit complement."""
    n &= 2**64 - 1
    head = bytearray()
    while n >= 0x80:
        head.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes([*head, n])


def _field(field: int, data: bytes) -> bytes:
    return _key(field, _BYTES) + _varint(len(data)) + data


def _double(field: int, value: float) -> bytes:
    return _key(field, _DOUBLE) + struct.pack("<d", value)


def _float(field: int, value: float) -> bytes:
    """As float32, TensorBoard's own; what is too large for it is infinite."""
    largest = 3.4028234e38
    return _key(field, _FLOAT) + struct.pack(
        "<f", value if abs(value) <= largest else value * float("inf")
    )
