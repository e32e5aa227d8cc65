"""Spaces spanned by rows: ranks, kernels and products, modulo a prime or in float64, behind one
set of verbs.
"""

import abc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from neuromanifold.numerics import modular
from neuromanifold.numerics.elimination import modular_rank, to_flint

_AT_ONCE, _FEW = 2048, 256  # rows that are eliminated together: the first, and those that are added


class Spaces(abc.ABC):
    """What is asked of matrices whose rows span a space."""

    exact: bool

    @abc.abstractmethod
    def lift(self, a: np.ndarray) -> np.ndarray:
        """Floats as numbers of this kind."""

    @abc.abstractmethod
    def product(self, A: np.ndarray, B: np.ndarray) -> np.ndarray:
        """Return AB."""

    @abc.abstractmethod
    def basis(self, A: np.ndarray) -> np.ndarray:
        """As many rows as the rank, spanning what the rows of A span."""

    @abc.abstractmethod
    def kernel(self, A: np.ndarray) -> np.ndarray:
        """Rows that span {v : Av = 0}."""

    def confined(self, A: np.ndarray, blocks: Sequence[np.ndarray]) -> Iterator[np.ndarray]:
        """For each block of columns: rows that span {v : Av = 0, v zero outside the block}; A is
        a basis.
        """
        for block in blocks:
            yield _place(self.kernel(self.mixed(A[:, block], len(block) + 2)), block, A.shape[1])

    @abc.abstractmethod
    def vanishing(self, A: np.ndarray) -> np.ndarray:
        """Which columns of A, a product of bases with vectors of length about one, are zero."""

    @abc.abstractmethod
    def extended(self, basis: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """A basis of what a basis and more rows span; the basis itself where they add nothing."""

    @abc.abstractmethod
    def gap(self, A: np.ndarray) -> float:
        """The smallest singular value that counts over the largest that does not; inf where
        nothing is in doubt.
        """

    def rank(self, A: np.ndarray) -> int:
        """The dimension of the span."""
        return len(self.basis(A))

    def mixed(self, A: np.ndarray, count: int) -> np.ndarray:
        """At most `count` random combinations of the rows: the same span where its dimension is
        below `count`.
        """
        return A if len(A) <= count else self.product(self.random((count, len(A))), A)

    @abc.abstractmethod
    def random(self, shape: tuple[int, ...]) -> np.ndarray:
        """Random numbers of this kind."""


@dataclass(frozen=True)
class ModularSpaces(Spaces):
    """Modulo a prime of 61 bits: a rank is too small with probability about 10⁻¹³, never too
    large.
    """

    p: int
    exact = True

    def lift(self, a: np.ndarray) -> np.ndarray:
        return modular.from_floats(np.asarray(a, np.float64), self.p)

    def random(self, shape: tuple[int, ...]) -> np.ndarray:
        return modular.random_residues(shape, self.p)

    def product(self, A: np.ndarray, B: np.ndarray) -> np.ndarray:
        return modular.matmul(A, B, self.p)

    def rank(self, A: np.ndarray) -> int:
        return modular_rank(A, self.p) if A.size else 0

    def basis(self, A: np.ndarray) -> np.ndarray:
        found = self._reduce(A[:_AT_ONCE])
        for start in range(_AT_ONCE, len(A), _AT_ONCE):
            found = self.extended(found, A[start : start + _AT_ONCE])
        return found

    def kernel(self, A: np.ndarray) -> np.ndarray:
        reduced = self.basis(A)
        pivots, free = _pivots(reduced)
        found = np.zeros((len(free), A.shape[1]), np.int64)
        found[np.arange(len(free)), free] = 1
        found[:, pivots] = (-reduced[:, free].T) % self.p
        return found

    def extended(self, basis: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Few rows at a time, and only such as a random vector of the kernel tells from the
        span.
        """
        found = basis if _in_echelon_form(basis) else self.basis(basis)
        while len(rows := rows[self._outside(found, rows)]):
            found, rows = self._join(found, rows[:_FEW]), rows[_FEW:]
        return found

    def _outside(self, basis: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return self.product(rows, self.orthogonal(basis)[:, None])[:, 0] != 0

    def orthogonal(self, basis: np.ndarray) -> np.ndarray:
        """A random vector of the kernel of an echelon form: rows outside its span are not
        orthogonal to it, but for 1/p of the draws.
        """
        pivots, free = _pivots(basis)
        vector = np.zeros(basis.shape[1], np.int64)
        vector[free] = self.random((len(free),))
        vector[pivots] = -self.product(basis[:, free], vector[free, None])[:, 0] % self.p
        return vector

    def _join(self, basis: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """The rows are reduced by the basis, then what is left among itself, then the basis by
        that: still an echelon form.

        Columns in which all of them are zero stay so.
        """
        pivots, free = _pivots(basis)
        free = free[basis[:, free].any(axis=0) | rows[:, free].any(axis=0)]
        above = basis[:, free]
        new = self._reduce((rows[:, free] - self.product(rows[:, pivots], above)) % self.p)
        first = _pivots(new)[0]
        found = np.zeros((len(basis) + len(new), basis.shape[1]), np.int64)
        found[: len(basis), free] = (above - self.product(above[:, first], new)) % self.p
        found[np.arange(len(basis)), pivots] = 1
        found[len(basis) :, free] = new
        return found[np.argsort(np.concatenate([pivots, free[first]]))]

    def confined(self, A: np.ndarray, blocks: Sequence[np.ndarray]) -> Iterator[np.ndarray]:
        """In echelon form v is known by its free columns: those outside the block are zero, the
        pivots outside bind the others.
        """
        pivots, free = _pivots(A)
        for block in blocks:
            mine, inside = np.intersect1d(free, block), np.isin(pivots, block)
            local = self.kernel(self.mixed(A[np.ix_(~inside, mine)], len(mine) + 2))
            rest = -self.product(local, A[np.ix_(inside, mine)].T) % self.p
            yield _place(
                np.hstack([local, rest]), np.concatenate([mine, pivots[inside]]), A.shape[1]
            )

    def vanishing(self, A: np.ndarray) -> np.ndarray:
        return np.asarray(~A.any(axis=0))

    def gap(self, A: np.ndarray) -> float:
        return np.inf

    def _reduce(self, A: np.ndarray) -> np.ndarray:
        """The nonzero rows of the reduced echelon form."""
        A = A[A.any(axis=1)]
        if _in_echelon_form(A):
            return A
        form, rank = to_flint(A, self.p).rref()
        width = A.shape[1]
        return np.array([int(e) for e in form.entries()[: rank * width]], np.int64).reshape(
            rank, width
        )


def _place(rows: np.ndarray, block: np.ndarray, width: int) -> np.ndarray:
    """The rows with zeros outside the block."""
    found = np.zeros((len(rows), width), rows.dtype)
    found[:, block] = rows
    return found


def _pivots(reduced: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The pivots of a reduced echelon form without zero rows, and the other columns."""
    pivots = (reduced != 0).argmax(axis=1) if reduced.size else np.zeros(0, int)
    return pivots, np.setdiff1d(np.arange(reduced.shape[1]), pivots)


def _in_echelon_form(A: np.ndarray) -> bool:
    """Whether A is its own reduced echelon form."""
    pivots = (A != 0).argmax(axis=1) if A.size else np.zeros(0, int)
    return bool(
        (np.diff(pivots) > 0).all() and np.array_equal(A[:, pivots], np.eye(len(A), dtype=A.dtype))
    )


@dataclass(frozen=True)
class FloatSpaces(Spaces):
    """In float64: directions whose singular value is below `rtol` of the largest count as zero."""

    rtol: float = 1e-9
    exact = False

    def lift(self, a: np.ndarray) -> np.ndarray:
        return np.asarray(a, np.float64)

    def random(self, shape: tuple[int, ...]) -> np.ndarray:
        return np.random.default_rng(0).standard_normal(shape) / np.sqrt(max(1, shape[-1]))

    def product(self, A: np.ndarray, B: np.ndarray) -> np.ndarray:
        return A @ B

    def basis(self, A: np.ndarray) -> np.ndarray:
        spectrum, rows = self._decompose(A)
        return rows[: self._count(spectrum)]

    def kernel(self, A: np.ndarray) -> np.ndarray:
        spectrum, rows = self._decompose(
            np.concatenate([A, np.zeros((max(0, A.shape[1] - len(A)), A.shape[1]))])
        )
        return rows[self._count(spectrum) :]

    def extended(self, basis: np.ndarray, rows: np.ndarray) -> np.ndarray:
        found = self.basis(np.concatenate([basis, rows]))
        return basis if len(found) == len(basis) else found

    def vanishing(self, A: np.ndarray) -> np.ndarray:
        return np.abs(A).max(axis=0, initial=0.0) <= self.rtol

    def gap(self, A: np.ndarray) -> float:
        spectrum = self.spectrum(A)
        kept = self._count(spectrum)
        return (
            float(spectrum[kept - 1] / spectrum[kept])
            if 0 < kept < len(spectrum) and spectrum[kept] > 0
            else np.inf
        )

    def spectrum(self, A: np.ndarray) -> np.ndarray:
        """Return the singular values."""
        return np.linalg.svd(A, compute_uv=False)

    def _count(self, spectrum: np.ndarray) -> int:
        return int((spectrum > self.rtol * max(spectrum[:1], default=0.0)).sum())

    def _decompose(self, A: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if not A.size:
            return np.zeros(0), np.eye(A.shape[1])[: len(A)]
        _, spectrum, rows = np.linalg.svd(A, full_matrices=False)
        return spectrum, rows


def exact_spaces() -> ModularSpaces:
    """Return spaces modulo a random prime."""
    return ModularSpaces(modular.random_prime())
