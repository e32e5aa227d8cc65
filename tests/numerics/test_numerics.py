"""The memory budget, the blocks, the float64 boundary and `Rank`, as the rest of the library
relies on them.
"""

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import neuromanifold as nm
from dynamics.compilations import compilations
from neuromanifold.numerics import arithmetic, blocks, memory_budget
from neuromanifold.numerics.validation import check_finite


@given(n=st.integers(1, 500), largest=st.integers(1, 600))
def test_blocks_cover_everything_once_in_at_most_two_lengths(n: int, largest: int):
    found = list(blocks(n, largest))
    assert [i for block in found for i in range(n)[block]] == list(range(n))
    lengths = {block.stop - block.start for block in found}
    assert max(lengths) <= largest and len(lengths) <= 2 and max(lengths) - min(lengths) <= 1
    assert len(found) == -(-n // largest)


@pytest.mark.parametrize(
    "given, bytes_",
    [
        (1, 1),
        (20_000, 20_000),
        ("512", 512),
        ("1K", 2**10),
        ("512M", 2**29),
        ("2G", 2**31),
        ("1.5G", 3 * 2**29),
    ],
)
def test_the_budget_is_what_was_asked_for(
    given: int | str, bytes_: int, monkeypatch: pytest.MonkeyPatch
):
    assert memory_budget(given) == bytes_
    monkeypatch.setenv("NEUROMANIFOLD_MEMORY", str(given))
    assert memory_budget() == bytes_
    assert memory_budget(77) == 77


def test_the_default_budget_is_at_most_two_gibibytes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("NEUROMANIFOLD_MEMORY", raising=False)
    assert 2**24 < memory_budget() <= 2**31


@pytest.mark.parametrize("bad", [[1], 1j, True, {"G": 2}])
def test_what_is_no_budget_is_refused(bad: Any):
    message = f"`memory` is {bad!r}; pass a number of bytes, or a string such as '512M' or '2G'."
    with pytest.raises(TypeError, match=re.escape(message)):
        memory_budget(bad)
    assert memory_budget(np.int64(2**20)) == memory_budget(np.float32(2**20)) == 2**20


@pytest.mark.parametrize("bad", [0, -1, "much", "", "-1G", "1X"])
def test_an_impossible_budget_is_refused(bad: int | str, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(
        ValueError,
        match=f"`memory` is {bad!r}; pass a positive number of bytes, or a string such as",
    ):
        memory_budget(bad)
    monkeypatch.setenv("NEUROMANIFOLD_MEMORY", str(bad) or "?")
    with pytest.raises(ValueError, match="NEUROMANIFOLD_MEMORY"):
        memory_budget()


def test_inside_the_boundary_numbers_are_wide_and_outside_the_flag_is_untouched(x64: bool):
    with arithmetic():
        assert jnp.asarray(np.ones(2)).dtype == np.float64
        assert jax.config.jax_enable_x64
    assert jax.config.jax_enable_x64 == x64
    with pytest.raises(ZeroDivisionError), arithmetic():
        raise ZeroDivisionError
    assert jax.config.jax_enable_x64 == x64


def rank(value: int) -> nm.Rank:
    return nm.Rank(np.array(value), np.array([3.0, 2.0, 1e-20]), np.array(1e-10), np.array(2e20))


def test_a_rank_acts_as_an_integer_and_shows_its_evidence():
    assert (int(rank(2)), list(range(rank(2))), "abc"[rank(2)]) == (2, [0, 1], "c")
    assert rank(2).value + 1 == 3
    assert (
        str(rank(2)).startswith("2 ")
        and "gap 2e+20" in str(rank(2))
        and "threshold 1e-10" in str(rank(2))
    )
    assert not rank(2).exact


def test_a_rank_is_never_silently_unequal_to_its_number():
    assert rank(2) == 2


def test_a_rank_leaves_jit_and_vmap():
    made = jax.jit(lambda v: nm.Rank(v, jnp.ones(3), jnp.float32(0.1), jnp.float32(1.0)))(
        jnp.int32(2)
    )
    assert int(made) == 2
    many = jax.vmap(lambda v: nm.Rank(v, jnp.ones(3), jnp.float32(0.1), jnp.float32(1.0)))(
        jnp.arange(4)
    )
    assert many.value.tolist() == [0, 1, 2, 3] and many.spectrum.shape == (4, 3)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, np.float32])
def test_a_small_array_on_the_host_is_checked_without_a_program(dtype: Any):
    spoilt = jnp.array(np.array([[0.0, 1.0], [np.inf, np.nan]], np.float32), dtype)
    numbers = jnp.array(np.ones((7, 3), np.float32), dtype)
    with compilations() as compiled:
        check_finite({"w": numbers}, "x")
        with pytest.raises(ValueError, match=r"`x\['w'\]` is inf at \[1, 0\] \(2 such entries\)"):
            check_finite({"w": spoilt}, "x")
    assert compiled == []


def test_a_large_array_is_checked_where_it_lies():
    large = jnp.zeros(1_000_001).at[-1].set(jnp.nan)
    check_finite(large[:-2], "x")
    with pytest.raises(ValueError, match=r"`x` is nan at \[1000000\]"):
        check_finite(large, "x")
    jax.jit(lambda a: check_finite(jnp.zeros(3), "x") or a)(jnp.ones(2))
