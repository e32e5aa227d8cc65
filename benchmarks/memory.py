"""Peak memory of `nm.ntk`, in a child process, above what the same call on few samples has left
there.
"""

from collections.abc import Iterator

from benchmarks.peak import in_child
from benchmarks.row import Row

MLP = (784, 1024, 1024, 10)
SMALL_MLP = (64, 128, 128, 10)
BUDGET = 256 * 2**20


def rows(*, quick: bool) -> Iterator[Row]:
    """Against the bound 2 × output + budget, from outputs below the budget to outputs far above
    it.
    """
    for n in (128, 512) if quick else (128, 512, 1024, 2048):
        yield _row(MLP, n, trace=False)
    yield _row(SMALL_MLP, 2_000 if quick else 20_000, trace=True)


def _row(widths: tuple[int, ...], n: int, *, trace: bool) -> Row:
    measured = in_child("benchmarks.memory_child", widths=widths, n=n, trace=trace, memory=BUDGET)
    name = (
        f"peak memory of the NTK, {'-'.join(map(str, widths))}, N={n:,}{', trace' if trace else ''}"
    )
    output = measured["output"]
    note = (
        f"output {output / 2**20:.0f} MiB, budget {BUDGET / 2**20:.0f} MiB, "
        f"{measured['seconds']:.1f} s with compiling"
    )
    return Row(
        name,
        measured["peak"],
        "2 × output + budget",
        2.0 * output + BUDGET,
        1.0,
        note=note,
        unit="B",
    )
