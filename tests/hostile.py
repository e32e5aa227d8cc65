"""Model files that lie: bombs, claims, code. `write(folder)` makes them all; a small network
stands in for each format.
"""

import io
import json
import os
import pickle
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

FILES = Path(__file__).parent / "data" / "torch"


class Bomb:
    """Unpickling it makes the folder `exploded`."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("exploded",)


def npy(header: bytes, body: bytes = b"", version: int = 1) -> bytes:
    length = struct.pack("<H" if version == 1 else "<L", len(header))
    return b"\x93NUMPY" + bytes([version, 0]) + length + header + body


def described(shape: str, dtype: str = "<f8") -> bytes:
    return f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()


def zipped(members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def patched(archive: bytes, offset_local: int, offset_central: int, value: bytes) -> bytes:
    """The archive with a field of its first member's two headers replaced."""
    data = bytearray(archive)
    local, central = data.find(b"PK\3\4"), data.find(b"PK\1\2")
    data[local + offset_local : local + offset_local + len(value)] = value
    data[central + offset_central : central + offset_central + len(value)] = value
    return bytes(data)


def deflated_zeros(size: int) -> bytes:
    """An .npz of that many zero bytes, a thousandth of them on disk."""
    header = npy(described(f"({size // 8},)"))
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block, crc, packed, left = bytes(2**20), zlib.crc32(header), packer.compress(header), size
    while left:
        piece = block[: min(left, len(block))]
        packed, crc, left = (
            packed + packer.compress(piece),
            zlib.crc32(piece, crc),
            left - len(piece),
        )
    packed += packer.flush()
    archive = bytearray(zipped({"0.weight.npy": b"x" * len(packed)}))
    start = archive.find(b"x" * min(64, len(packed)))
    archive[start : start + len(packed)] = packed
    sizes = struct.pack("<LLL", crc, len(packed), len(header) + size)
    return patched(patched(bytes(archive), 8, 10, b"\x08\0"), 14, 16, sizes)


def overlapping(count: int) -> bytes:
    """Many names in the directory for one member of 10 MB of zeros."""
    one = zipped({"0.npy": bytes(10**7)}, zipfile.ZIP_DEFLATED)
    start = one.find(b"PK\1\2")
    body, entry = one[:start], one[start : start + 46 + 5]
    entries = b"".join(entry[:46] + f"{i:05d}".encode() for i in range(count))
    return (
        body
        + entries
        + struct.pack(
            "<4s4H2LH",
            b"PK\5\6",
            0,
            0,
            min(count, 65535),
            min(count, 65535),
            len(entries),
            len(body),
            0,
        )
    )


def safetensors(header: bytes, body: bytes = b"", length: int | None = None) -> bytes:
    return struct.pack("<Q", len(header) if length is None else length) + header + body


def network(**changes: Any) -> bytes:
    """A small network as `nm.save` writes it, with parts of its description changed."""
    tensors = {"0.weight": [3, 2], "0.bias": [3], "1.weight": [1, 3], "1.bias": [1]}
    header: dict[str, Any] = {}
    position = 0
    for name, shape in tensors.items():
        size = 4 * int(np.prod(shape))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [position, position + size]}
        position += size
    description = {
        "widths": [2, 3, 1],
        "activation": ["relu"],
        "bias": True,
        "output_activation": "identity",
        "scaling": "standard",
    }
    header["__metadata__"] = {"neuromanifold": json.dumps({**description, **changes})}
    return safetensors(json.dumps(header).encode(), bytes(position))


def torch_file(pickled: bytes, storages: dict[str, bytes] | None = None) -> bytes:
    members = {"archive/data.pkl": pickled, "archive/byteorder": b"little"}
    return zipped(
        {**members, **{f"archive/data/{key}": raw for key, raw in (storages or {}).items()}}
    )


def tensor_pickle(
    size: str, stride: str, *, name: bytes = b"0.weight", offset: bytes = b"K\0"
) -> bytes:
    """{name: a float32 tensor of storage 0}, as torch.save writes it, with sizes given as pickle
    operations.
    """
    storage = b"(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0000X\3\0\0\0cpuK\6tQ"
    sizes = b"(" + size.encode("latin1") + b"t(" + stride.encode("latin1") + b"t"
    rebuilt = (
        b"ctorch._utils\n_rebuild_tensor_v2\n("
        + storage
        + offset
        + sizes
        + b"\x89ccollections\nOrderedDict\n)RtR"
    )
    return b"\x80\2}X" + struct.pack("<L", len(name)) + name + rebuilt + b"s."


def long1(number: int) -> str:
    raw = number.to_bytes(8, "little")
    return (b"\x8a\x08" + raw).decode("latin1")


def program(change: Callable[[str], str], end: str = "models/model.json") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(FILES / "net.pt2") as old, zipfile.ZipFile(buffer, "w") as new:
        for member in old.infolist():
            content = old.read(member)
            new.writestr(
                member.filename,
                change(content.decode()) if member.filename.endswith(end) else content,
            )
    return buffer.getvalue()


def hostile() -> dict[str, Callable[[], bytes]]:
    """File name → how to make it."""
    deep, array = b"[" * 100_000, npy(described("(3, 2)"), bytes(48))
    claims = {
        "trillion": "(1000000000000,)",
        "negative": "(-3, 2)",
        "fraction": "(1.5, 4)",
        "truth": "(True, 6)",
        "short": "(3, 1)",
    }
    code = pickle.dumps(Bomb(), 2)
    return {
        "bomb.npz": lambda: deflated_zeros(2**29),
        "overlap.npz": lambda: overlapping(1000),
        "directory.npz": lambda: overlapping(100_000),
        **{
            f"{name}.npz": lambda shape=shape: zipped(
                {"0.weight.npy": npy(described(shape), bytes(48))}
            )
            for name, shape in claims.items()
        },
        "deepheader.npz": lambda: zipped({"0.weight.npy": npy(b"(" * 9_000)}),
        "longheader.npz": lambda: zipped(
            {"0.weight.npy": b"\x93NUMPY\2\0" + struct.pack("<L", 2**32 - 1) + bytes(100)}
        ),
        "code.npz": lambda: zipped({"0.weight.npy": npy(described("(1,)", "|O"), code)}),
        "text.npz": lambda: zipped({"0.weight.npy": npy(described("(1,)", "<U9"), bytes(36))}),
        "encrypted.npz": lambda: patched(zipped({"0.weight.npy": array}), 6, 8, b"\1\0"),
        "bzip2.npz": lambda: zipped({"0.weight.npy": array}, zipfile.ZIP_BZIP2),
        "lzma.npz": lambda: zipped({"0.weight.npy": array}, zipfile.ZIP_LZMA),
        "unknown.npz": lambda: patched(zipped({"0.weight.npy": array}), 8, 10, b"\x63\0"),
        "twice.npz": lambda: zipped({"0.weight.npy": array, "0.Weight.npy": array}).replace(
            b"0.Weight", b"0.weight"
        ),
        "liar.npz": lambda: patched(
            zipped({"0.weight.npy": array}), 22, 24, struct.pack("<L", 2**31)
        ),
        "notzip.npz": lambda: code,
        "length.safetensors": lambda: safetensors(b"{}", length=2**60),
        "long.safetensors": lambda: safetensors(b'{"a":' + b"[]," * 2_000_000 + b"1}"),
        "deep.safetensors": lambda: safetensors(b'{"a":' + deep + b"}"),
        "twice.safetensors": lambda: network().replace(b'"1.weight"', b'"0.weight"'),
        "claim.safetensors": lambda: (
            network()
            .replace(b'"shape": [3, 2]', b'"shape": [999999999, 2]')
            .replace(b"\xa5", b"\xad")
        ),
        "power.safetensors": lambda: network(activation=["power(1000000000)"]),
        "digits.safetensors": lambda: network(activation=[f"power({'9' * 5000})"]),
        "widths.safetensors": lambda: network(widths=[2, 10**12, 1]),
        "nested.safetensors": lambda: network(activation=[[["relu", 10**9]]]),
        "extra.safetensors": lambda: network(system="rm"),
        "pickle.safetensors": lambda: code,
        "code.pt": lambda: torch_file(code),
        "nested.pt": lambda: torch_file(pickle.dumps({"0.weight": Bomb()}, 2)),
        "eval.pt": lambda: torch_file(
            b"cbuiltins\neval\n(X\x14\0\0\0__import__('os').getp" + b"tR."
        ),
        "memo.pt": lambda: torch_file(b"\x80\2}r\xff\xff\xff\x7f."),
        "stack.pt": lambda: torch_file(b"\x80\2" + b"]" * 3_000_000 + b"."),
        "huge.pt": lambda: torch_file(b"\x80\2" + b"N0" * 9_000_000 + b"."),
        "expanded.pt": lambda: torch_file(
            tensor_pickle(long1(10**6) + long1(10**6), "K\0K\0"), {"0": bytes(24)}
        ),
        "outside.pt": lambda: torch_file(
            tensor_pickle("K\3K\2", "K\2K\1", offset=b"K\7"), {"0": bytes(24)}
        ),
        "negative.pt": lambda: torch_file(
            tensor_pickle("J\xff\xff\xff\xffK\2", "K\2K\1"), {"0": bytes(24)}
        ),
        "missing.pt": lambda: torch_file(tensor_pickle("K\3K\2", "K\2K\1")),
        "truncated.pt": lambda: (FILES / "mlp.pt").read_bytes()[:700],
        "bigendian.pt": lambda: torch_file(b"\x80\2}.").replace(b"little", b"biggie"),
        "empty.pth": lambda: b"",
        "raw.pth": lambda: code,
        "deep.pt2": lambda: program(lambda text: "[" * 100_000),
        "wide.pt2": lambda: program(lambda text: "[" + "{}," * 2_000_000 + "1]"),
        "zeros.pt2": lambda: program(
            lambda text: (
                text.replace('"as_float": 0.25', '"as_float": 0.25')
                .replace("aten.add_.Tensor", "aten.new_zeros.default")
                .replace('"arg": {"as_float": 0.25}', '"arg": {"as_ints": [1000000, 1000000]}')
            )
        ),
        "sizes.pt2": lambda: program(
            lambda text: text.replace("aten.add_.Tensor", "_operator.mul")
        ),
        "code.pt2": lambda: program(
            lambda text: text.replace("torch.ops.aten.max_pool2d.default", "posix.system")
        ),
        "weights.pt2": lambda: program(
            lambda text: text.replace('"use_pickle": false', '"use_pickle": true'),
            "weights_config.json",
        ),
    }


def write(folder: Path) -> list[Path]:
    """All of them."""
    paths = []
    for name, make in hostile().items():
        paths.append(folder / name)
        paths[-1].write_bytes(make())
    return paths
