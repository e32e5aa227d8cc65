"""Discovery: the orbit and nullity of networks whose symmetries are known, all affine fields as second route, what must not be found."""

import jax
import numpy as np

from neuromanifold import symmetry as S
from neuromanifold.numerics.precision import arithmetic
from symmetry.nets import NETS

QUICK = ("linear stream", "layer norm", "normalised batch", "biased attention", "block")


def found(name, rng, key, **options):
    net = NETS[name]
    params, x = net.draw(rng)
    return net, params, x, S.discover(net.f, params, x, key=key, batch=net.batch, **options)


def moved(f, params, element, x):
    with arithmetic():
        before, after = (np.asarray(f(p, x)) for p in (params, element(params)))
        return np.abs(after - before).max() / np.abs(before).max()


def test_every_orbit_and_nullity_of_the_reference(rng, key, draws, tally):
    """The quick ones; all of them, at 5 seeds: `pytest tests/symmetry/test_discover.py --draws 5`."""
    names = NETS if draws(1) > 1 else QUICK
    for name in names:
        for k in jax.random.split(key, draws(1)):
            net, params, x, answer = found(name, rng, k)
            assert answer.decided and answer.orbit == net.orbit, (name, answer)
            assert answer.nullity == net.nullity if net.nullity else answer.nullity >= net.orbit, (name, answer)
            assert moved(net.f, params, answer.group.sample(key=k), x) < 1e-10
    tally(len(names) * draws(1), of=len(NETS) * draws(1), what="networks of the reference")
