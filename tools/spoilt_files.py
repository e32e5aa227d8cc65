"""Spoils files of every format that the library reads, and reads them: each is read, or refused in
one sentence of ours, within a time limit and without much memory.

    PYTHONPATH=src python tools/spoilt_files.py [--count 500] [--limit 20] [WORD …]

Bytes are flipped, pieces cut out, doubled, moved, zeroed or set to 255, ends are cut off, and
numbers in a text are replaced. Prints each foreign error and each read without an end, and counts.
"""

import argparse
import contextlib
import io
import random
import re
import resource
import signal
import sys
import tempfile
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import jax
import numpy as np

import neuromanifold as nm
from neuromanifold.inspection.opening import samples
from neuromanifold.runtime.checksummed import LENGTH, write_checksummed
from neuromanifold_papers.ledger import read_evidence, statements, verify, write_evidence

TORCH = Path(__file__).parents[1] / "tests" / "data" / "torch"
NET = nm.MLP((2, 3, 1))
PARAMS = jax.tree.map(np.asarray, NET.init(key=jax.random.key(0)))
X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(4, 2)
Y = np.ones((4, 1), np.float32)
WEIGHTS = {f"{i}.{k}": getattr(p, k) for i, p in enumerate(PARAMS) for k in ("weight", "bias")}
GROWTH = 2**30
"""Bytes that reading a small file may take."""


def trained(path: Path) -> Any:
    """Train from a checkpoint, or write one."""
    return nm.train(
        NET, PARAMS, X, Y, key=jax.random.key(0), epochs=4, single=True, checkpoint=path
    )


def loaded(path: Path) -> Any:
    """Load a network and use it."""
    f, params = nm.load(path)
    return np.asarray(f(params, X))


def weights(path: Path) -> Any:
    """Load the weights of a perceptron and use them."""
    f, params = nm.load(path, activation="relu")
    return np.asarray(f(params, np.zeros((2, f.widths[0]), np.float32)))


def saved(write: Callable[[Path], Any], suffix: str) -> bytes:
    """What a writer writes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"file{suffix}"
        write(path)
        return path.read_bytes()


def table() -> bytes:
    return b"a,b\n" + b"".join(f"{i / 7:.5f},{-i}\n".encode() for i in range(30))


def array() -> bytes:
    stream = io.BytesIO()
    np.save(stream, X)
    return stream.getvalue()


def arrays(**content: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **content)
    return stream.getvalue()


def evidence() -> bytes:
    some = statements("riemann")[:3]
    return saved(lambda path: write_evidence(verify(some, draws=1), path), ".json")


def certificate() -> bytes:
    found = nm.functional_dimension(NET, PARAMS, X, exact=True)
    return saved(lambda path: found.certificate.save(path), ".json")


def rechecked(path: Path) -> Any:
    """Check a certificate by the program that needs no library; its exit status is its answer."""
    import check_certificate

    sys.argv = ["check_certificate.py", str(path)]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        check_certificate.main()


def signed(path: Path) -> Path:
    """A forger puts the right checksum under a spoilt file."""
    content = path.read_bytes()[:-LENGTH]
    return write_checksummed(path, lambda temporary: temporary.write_bytes(content))


# Of each format: its suffix, a whole file, and what reads it.
FORMATS: dict[str, tuple[str, Callable[[], bytes], Callable[[Path], Any]]] = {
    "our network": (".safetensors", lambda: saved(lambda p: nm.save(p, NET, PARAMS), ".safetensors"), loaded),
    "weights .npz": (".npz", lambda: arrays(**WEIGHTS), weights),
    "samples .npy": (".npy", array, lambda p: samples(str(p))),
    "samples .npz": (".npz", lambda: arrays(x=X, mask=X), lambda p: samples(str(p))),
    "samples .csv": (".csv", table, lambda p: samples(str(p))),
    "weights .pt": (".pt", (TORCH / "mlp.pt").read_bytes, weights),
    "program .pt2": (".pt2", (TORCH / "net.pt2").read_bytes, lambda p: nm.load(p)),
    "checkpoint": (".checkpoint", lambda: saved(trained, ".checkpoint"), trained),
    "checkpoint with the right checksum": (".checkpoint", lambda: saved(trained, ".checkpoint"), lambda p: trained(signed(p))),
    "certificate": (".json", certificate, rechecked),
    "evidence": (".json", evidence, read_evidence),
}  # fmt: skip


def flip(data: bytearray, rng: random.Random) -> None:
    for _ in range(rng.choice([1, 1, 2, 8])):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def cut_off(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data)) :]


def cut_out(data: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(data))
    del data[start : start + rng.choice([1, 4, 64])]


def double(data: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(data))
    data[start:start] = data[start : start + rng.choice([1, 8, 200])]


def overwrite(data: bytearray, rng: random.Random) -> None:
    start, length = rng.randrange(len(data)), rng.choice([1, 2, 4, 8])
    data[start : start + length] = rng.choice([b"\0", b"\xff", b"\x7f"]) * length


def move(data: bytearray, rng: random.Random) -> None:
    start, length = rng.randrange(len(data)), rng.choice([4, 8, 64])
    piece = data[start : start + length]
    del data[start : start + length]
    place = rng.randrange(len(data) + 1)
    data[place:place] = piece


def renumber(data: bytearray, rng: random.Random) -> None:
    """Put another number in the place of one that is written in digits."""
    if found := list(re.finditer(rb"\d+", bytes(data))):
        where = rng.choice(found)
        data[where.start() : where.end()] = rng.choice(
            [b"-1", b"0", b"99999999999", b"1e999", b"18446744073709551615", b"null", b"[]"]
        )


WAYS = [flip, flip, cut_off, cut_out, double, overwrite, move, renumber, renumber]


def spoilt(whole: bytes, rng: random.Random) -> bytes:
    """A file with something wrong, half of the archives in a member whose checksum is right."""
    if zipfile.is_zipfile(io.BytesIO(whole)) and rng.random() < 0.5:
        with zipfile.ZipFile(io.BytesIO(whole)) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        chosen = rng.choice([name for name, content in members.items() if content])
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as archive:
            for name, content in members.items():
                archive.writestr(name, changed(content, rng) if name == chosen else content)
        return stream.getvalue()
    return changed(whole, rng)


def changed(whole: bytes, rng: random.Random) -> bytes:
    data = bytearray(whole)
    rng.choice(WAYS)(data, rng)
    return bytes(data)


class Endless(BaseException):
    """A read took longer than its limit."""


def ended(signal_: int, frame: FrameType | None) -> None:
    """The alarm."""
    raise Endless


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def outcome(path: Path, read: Callable[[Path], Any], limit: float) -> tuple[str, str]:
    """How reading ended, and what it said."""
    signal.signal(signal.SIGALRM, ended)
    signal.setitimer(signal.ITIMER_REAL, limit)
    before = peak()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read(path)
    except Endless:
        return "endless", ""
    except (ValueError, TypeError, ArithmeticError, OSError, SystemExit) as error:
        said = str(error)
        clear = ("`" in said or path.name in said) and "\n" not in said and len(said) < 600
        return ("refused" if clear else "foreign"), f"{type(error).__name__}: {said[:300]}"
    except BaseException as error:
        return "foreign", f"{type(error).__name__}: {str(error)[:300]}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return ("read" if peak() - before < GROWTH else "large"), ""


def main() -> None:
    """Spoil the files, read them, print what is wrong, and the counts."""
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("words", nargs="*")
    ask.add_argument("--count", type=int, default=500)
    ask.add_argument("--limit", type=float, default=20)
    asked = ask.parse_args()
    for name, (suffix, make, read) in FORMATS.items():
        if asked.words and not any(word in name for word in asked.words):
            continue
        whole, counts = make(), Counter[str]()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"spoilt{suffix}"
            path.write_bytes(whole)
            assert outcome(path, read, 60)[0] == "read", outcome(path, read, 60)
            for number in range(asked.count):
                path.write_bytes(spoilt(whole, random.Random(f"{name} {number}")))
                how, said = outcome(path, read, asked.limit)
                counts[how] += 1
                if how not in ("read", "refused"):
                    print(f"{how:8} {name} {number}: {said}", flush=True)
        print(f"{name}: {dict(counts)}", flush=True)


if __name__ == "__main__":
    main()
