"""Networks for the tests of this room: random, of a given inner rank, and adversarially
perturbed.
"""

import numpy as np

import neuromanifold as nm


def random_params(rng, widths, bias=True, scale=1.0):
    """Gaussian weights and biases in float64."""
    return tuple(
        nm.Layer(
            scale * rng.normal(size=(b, a)) * np.sqrt(2 / a),
            0.3 * rng.normal(size=b) if bias else None,
        )
        for a, b in zip(widths[:-1], widths[1:], strict=True)
    )


def orthonormal_frame(rng, width, rank):
    """Nonnegative orthonormal columns: their supports are disjoint."""
    owner = np.concatenate([np.arange(rank), rng.integers(0, rank, size=width - rank)])
    frame = rng.uniform(0.2, 1.0, size=(width, 1)) * (owner[:, None] == np.arange(rank))
    return rng.permutation(frame / np.linalg.norm(frame, axis=0))


def near_isometric(rng, widths, rank, noise, bias=True):
    """Weights close to a chain of partial isometries of that rank on the positive orthant: cheap
    networks.
    """
    frames = [orthonormal_frame(rng, w, rank) for w in widths]
    return tuple(
        nm.Layer(
            b @ a.T + noise * rng.normal(size=(len(b), len(a))) / np.sqrt(len(a)),
            noise * rng.normal(size=len(b)) if bias else None,
        )
        for a, b in zip(frames[:-1], frames[1:], strict=True)
    )
