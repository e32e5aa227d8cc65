"""How much of 200 drawn multilayer perceptrons `dimension_account` leaves unexplained: the table of
docs/symmetry.md.

Ten shapes, 20 networks each, weights and biases N(0, 2/fan_in), 60 samples N(0, 1):   python
docs/images/account.py
"""

import jax
import numpy as np

import neuromanifold as nm

SHAPES = (
    (1, 8, 1), (2, 8, 2), (3, 12, 1), (1, 6, 6, 1), (2, 6, 6, 1), (4, 8, 5, 2), (1, 5, 5, 5, 1), (2, 8, 8, 8, 1),
    (3, 6, 6, 6, 2), (1, 10, 10, 10, 10, 1),
)  # fmt: skip
DRAWS, SAMPLES = 20, 60


def survey(widths: tuple[int, ...]) -> str:
    """One row: D, the chain's medians, what stays unexplained, and whether rows add up."""
    net, rng = nm.MLP(widths), np.random.default_rng(list(widths))
    found = []
    for draw in range(DRAWS):
        params = net.init(key=jax.random.key(draw), scheme=nm.init.he_bias)
        found.append(nm.dimension_account(net, params, rng.standard_normal((SAMPLES, widths[0]))))
    assert all(
        sum(count for _, count in account.rows) == net.n_params and account.in_kernel
        for account in found
    )
    assert all(min(count for _, count in account.rows) >= 0 for account in found)
    chain = " ≤ ".join(f"{np.median([account.chain[k] for account in found]):g}" for k in range(4))
    left = np.array([account.unexplained for account in found])
    groups = np.array(
        [account.parameters - account.chain[0] - account.symmetric for account in found]
    )
    kinds = ("relations", "one unit", "one layer", "two layers", "too few")
    shares = [
        f"{np.mean([sum(n for name, n in a.explained.items() if kind in name) for a in found]):.1f}"
        for kind in kinds
    ]
    cells = [
        str(widths),
        chain,
        f"{groups.mean():.1f}",
        *shares,
        f"{(left > 0).sum()}",
        f"{left.mean():.2f}",
        f"{left.max()}",
    ]
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    for shape in SHAPES:
        print(survey(shape), flush=True)
