#!/usr/bin/env python3
"""Re-check a certificate of `neuromanifold` with nothing but Python's standard library.

    python3 check_certificate.py certificate.json

The file holds a network at its parameters and data as a list of instructions (nine kinds, on flat
lists of exact numbers), and claims about the Jacobian that they compute. Signs are checked in
fractions, ranks modulo the prime named. What is larger than the limits below is said to be taken on
trust, as is that the instructions are those of the network. Exit status 1: a claim fails.
"""

import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

FRACTIONS, RESIDUES, ELIMINATION = 3_000_000, 300_000_000, 200_000_000
HOLDS, FAILS, TRUST = "holds", "fails", "taken on trust"


def exactly(v: int | str) -> Fraction:
    """A number as it is written: an integer, a fraction, or a hexadecimal float."""
    return Fraction(float.fromhex(v)) if isinstance(v, str) and "0x" in v else Fraction(v)


def residue(v: Fraction, p: int) -> int:
    return v.numerator * pow(v.denominator, -1, p) % p


def evaluate(instructions: list[Any], wanted: set[int], p: int = 0) -> dict[int, list[Any]]:
    """The wanted arrays, modulo p, or in fractions where p is 0. An array is dropped after its
    last use.
    """
    reduce: Callable[[Any], Any] = (lambda v: v % p) if p else (lambda v: v)
    divide: Callable[[Any, Any], Any] = (
        (lambda a, b: a * pow(b, -1, p)) if p else (lambda a, b: a / b)
    )
    last = {
        a: at for at, (name, *rest) in enumerate(instructions) if name != "number" for a in rest[0]
    }
    made: dict[int, list[Any]] = {}
    for at, (name, arguments, *details) in enumerate(instructions):
        if name == "number":
            made[at] = [residue(exactly(v), p) if p else exactly(v) for v in arguments]
            continue
        made[at] = [reduce(v) for v in apply(name, [made[a] for a in arguments], details, divide)]
        for a in {*arguments} - wanted:
            if last[a] == at:
                del made[a]
    return {at: made[at] for at in wanted}


def apply(
    name: str, arrays: list[list[Any]], details: list[Any], divide: Callable[[Any, Any], Any]
) -> list[Any]:
    """One instruction. Place 0 of a gather is a zero, the others count through its arguments."""
    a, b = arrays[0], arrays[-1]
    if name == "gather":
        pool = [0, *(v for array in arrays for v in array)]
        return [pool[i] for i in details[0]]
    if name == "add":
        return [x + y for x, y in zip(a, b, strict=True)]
    if name == "negate":
        return [-x for x in a]
    if name == "multiply":
        return [x * y for x, y in zip(a, b, strict=True)]
    if name == "divide":
        return [divide(x, y) for x, y in zip(a, b, strict=True)]
    if name == "dot":
        return dot(a, b, *details[0])
    if name == "sum":
        return [sum(a[i : i + details[0]]) for i in range(0, len(a), details[0])]
    if name == "scatter":
        out = list(a)
        for i, v in zip(details[0], b, strict=True):
            out[i] = out[i] + v
        return out
    raise ValueError(f"unknown instruction {name!r}")


def dot(a: list[Any], b: list[Any], batch: int, m: int, k: int, n: int) -> list[Any]:
    out = []
    for at in range(batch):
        columns = [b[at * k * n + j : (at + 1) * k * n : n] for j in range(n)]
        rows = [a[(at * m + i) * k : (at * m + i + 1) * k] for i in range(m)]
        out += [
            sum(x * y for x, y in zip(row, column, strict=True))
            for row in rows
            for column in columns
        ]
    return out


def work(instructions: list[Any]) -> int:
    """Multiplications and entries, roughly."""
    total = 0
    for name, arguments, *details in instructions:
        if name == "dot":
            batch, m, k, n = details[0]
            total += batch * m * k * n
        else:
            total += len(details[0]) if details and isinstance(details[0], list) else len(arguments)
    return total


def rank(rows: list[list[int]], p: int) -> int:
    """The rank modulo p, by elimination."""
    rows, found = [list(row) for row in rows], 0
    for column in range(len(rows[0]) if rows else 0):
        pivot = next((i for i in range(found, len(rows)) if rows[i][column] % p), None)
        if pivot is None:
            continue
        rows[found], rows[pivot] = rows[pivot], rows[found]
        inverse = pow(rows[found][column], -1, p)
        for i in range(found + 1, len(rows)):
            if factor := rows[i][column] * inverse % p:
                rows[i] = [(x - factor * y) % p for x, y in zip(rows[i], rows[found], strict=True)]
        found += 1
    return found


def degrees(instructions: list[Any], data: set[int], output: int) -> tuple[int, int]:
    """The lowest and the highest degree of the output in the entries of the data; zeros have
    every degree.
    """
    known: list[tuple[int, int]] = []
    for at, (name, arguments, *_) in enumerate(instructions):
        if name == "number":
            zero = at not in data and not any(map(exactly, arguments))
            known.append((1, 1) if at in data else (99 if zero else 0, 0))
            continue
        low, high = zip(*(known[a] for a in arguments), strict=True)
        if name in ("multiply", "dot"):
            known.append((min(99, sum(low)), sum(high)))
        elif name == "divide":
            known.append((low[0], 99 if high[1] else high[0]))
        else:
            known.append((min(low), max(high)))
    return known[output]


def check(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (what, "holds" | "fails" | "taken on trust")."""
    yield from bends(document["bends"])
    claims, jacobian = document["claims"], document["jacobian"]
    (height, width), r, p = claims["shape"], claims["rank"], claims["prime"]
    prime = 2**59 < p < 2**64 and is_prime(p)
    yield (
        "the modulus is a prime between 2^59 and 2^64 (Miller-Rabin, twelve bases: a proof at "
        "this size)",
        verdict(prime),
    )
    if not prime:
        return
    if (
        work(jacobian["instructions"]) > RESIDUES
        or height * width * min(height, width) > ELIMINATION
    ):
        yield f"a minor of order {r} is invertible modulo the prime", TRUST
        return
    flat = evaluate(jacobian["instructions"], {jacobian["output"]}, p)[jacobian["output"]]
    matrix = [flat[i * width : (i + 1) * width] for i in range(height)]
    yield f"the instructions make a {height}×{width} matrix", verdict(len(flat) == height * width)
    if len(flat) != height * width:
        return
    rows, columns = claims["rows"], claims["columns"]
    named = len({*rows}) == len({*columns}) == len(rows) == len(columns) == r
    named = named and all(0 <= i < height for i in rows) and all(0 <= j < width for j in columns)
    minor = [[matrix[i][j] for j in columns] for i in rows] if named else []
    yield (
        f"the minor named is invertible modulo the prime: rank ≥ {r}",
        verdict(named and rank(minor, p) == r),
    )
    yield f"the rank modulo the prime is {r}", verdict(rank(matrix, p) == r)
    yield from upper_bound(claims, jacobian)


def is_prime(p: int) -> bool:
    """Miller-Rabin; for odd numbers between 37 and 3·10^23 these twelve bases decide (Sorenson
    and Webster, 2015).
    """
    twos = ((p - 1) & (1 - p)).bit_length() - 1
    for a in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37):
        power = pow(a, p >> twos, p)
        if power != 1 and all(pow(power, 1 << k, p) != p - 1 for k in range(twos)):
            return False
    return True


def verdict(holds: bool) -> str:
    return HOLDS if holds else FAILS


def bends(claims: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if not claims["signs"] and not claims["maxima"]:
        return
    what = "the side of every bend"
    if work(claims["instructions"]) > FRACTIONS:
        yield what, TRUST
        return
    found = evaluate(
        claims["instructions"], {at for at, _ in claims["signs"]} | {*claims["maxima"]}
    )
    signs = all([(v > 0) - (v < 0) for v in found[at]] == stated for at, stated in claims["signs"])
    yield (
        f"{what}, in fractions",
        verdict(signs and all(v <= 0 for at in claims["maxima"] for v in found[at])),
    )


def upper_bound(claims: dict[str, Any], jacobian: dict[str, Any]) -> Iterator[tuple[str, str]]:
    (height, width), r, reason = claims["shape"], claims["rank"], claims["reason"]
    proved = claims["failure_probability"] == 0
    if reason == "full rank":
        yield (
            f"no {height}×{width} matrix has a larger rank",
            verdict(proved and r == min(height, width)),
        )
    elif reason == "regions":
        allowed = regions(claims, jacobian)
        what = f"rows of J are affine in the sample on each region, which allows {allowed}"
        yield what, verdict(proved and allowed == r)
    elif reason == "kernel vectors":
        yield from kernel(claims, jacobian, proved)
    elif reason == "primes":
        yield "so many primes agree that no minor can be larger", TRUST
    else:
        yield f"no larger rank, up to a probability of {claims['failure_probability']:.1g}", TRUST


def regions(claims: dict[str, Any], jacobian: dict[str, Any]) -> int:
    """How many rows of J the regions allow; −1 where the claims about them do not fit together."""
    of, gates, counts, o = (
        *(claims["regions"][k] for k in ("of", "gates", "counts")),
        claims["outputs"],
    )
    fits = len(of) == len(gates) and len(of) * o == claims["shape"][0]
    fits = fits and all(of.count(k) == n for k, n in enumerate(counts)) and sum(counts) == len(of)
    fits = fits and len({*zip(of, gates, strict=True)}) == len(counts) == len({*gates})
    low, high = degrees(jacobian["instructions"], {*jacobian["data"]}, jacobian["output"])
    entries = sum(len(jacobian["instructions"][at][1]) // len(of) for at in jacobian["data"])
    fits = fits and high <= 1 and claims["affine"] == entries + (low < 1)
    return o * sum(min(n, claims["affine"]) for n in counts) if fits else -1


def kernel(
    claims: dict[str, Any], jacobian: dict[str, Any], proved: bool
) -> Iterator[tuple[str, str]]:
    (height, width), r, p = claims["shape"], claims["rank"], claims["prime"]
    vectors = [{i: exactly(v) for i, v in vector} for vector in claims["kernel"]]
    residues = [[residue(v.get(i, Fraction(0)), p) for i in range(width)] for v in vectors]
    independent = proved and len(vectors) == width - r == rank(residues, p)
    what = f"J annihilates {width - r} independent vectors"
    if work(jacobian["instructions"]) + height * sum(map(len, vectors)) > FRACTIONS:
        yield (
            f"{what}, independent: checked, annihilated: on trust",
            TRUST if independent else FAILS,
        )
        return
    flat = evaluate(jacobian["instructions"], {jacobian["output"]})[jacobian["output"]]
    dead = all(
        not sum(flat[i * width + j] * c for j, c in v.items())
        for i in range(height)
        for v in vectors
    )
    yield f"{what}, in fractions", verdict(independent and dead)


def whole(text: str) -> bool:
    """Whether the SHA-256 at the end is that of what stands before it."""
    body, _, end = text.rstrip("\n").rpartition(',"sha256":"')
    return hashlib.sha256(f"{body}}}".encode()).hexdigest() == end.removesuffix('"}')


def main() -> None:
    try:
        with open(sys.argv[1], encoding="utf-8") as file:
            sys.exit(1 if report(file.read()) else 0)
    except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, MemoryError) as e:
        print(f"  {FAILS:<15} the file is no certificate ({type(e).__name__}: {e})")
        sys.exit(1)


def report(text: str) -> bool:
    """Print what holds and what fails; whether anything fails."""
    document, failed = json.loads(text), False
    height, width = document["claims"]["shape"]
    print(
        f"{document['network']}: rank {document['claims']['rank']} of a {height}×{width} Jacobian"
    )
    for what, found in [("the file is whole (SHA-256)", verdict(whole(text))), *check(document)]:
        failed |= found == FAILS
        print(f"  {found:<15} {what}")
    for rounded in document["rounded"]:
        print(f"  {'rounded once':<15} {rounded}")
    return failed


if __name__ == "__main__":
    main()
