"""One geometry of a sample: a public call decides the bends of every sample once, and certifies
the rank of J at most once.
"""

import sys
from collections import Counter

import jax
import numpy as np
import pytest

import neuromanifold as nm
from dynamics.compilations import compilations
from neuromanifold.inspection import sections
from neuromanifold.regions import decisions
from neuromanifold.tangent.rank import certificate

NET = nm.MLP((2, 4, 3, 1))


def network(params, x):
    """No perceptron to the library."""
    return jax.nn.relu(x @ params["in"] + params["bias"]) @ params["out"]


def weights(key):
    sizes = {"bias": (4,), "in": (2, 4), "out": (4, 1)}
    keys = jax.random.split(key, len(sizes))
    found = {
        name: np.array(jax.random.normal(k, size))
        for k, (name, size) in zip(keys, sizes.items(), strict=True)
    }
    found["bias"][0] = -9.0  # off on the sample: there is something to reduce
    return found


SUBJECTS = {
    "perceptron": lambda key: (NET, NET.init(key=key)),
    "function": lambda key: (network, weights(key)),
}


class Asked:
    """How often each sample was decided by each network, and how many ranks were certified."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.decided, self.certified = Counter[tuple[bytes, bytes]](), 0
        walked, certify = decisions._by_bounds, certificate.JacobianCertificate

        def counted(graph, leaves, data, *rest):
            network = b"".join(np.asarray(leaf, np.float64).tobytes() for leaf in leaves)
            self.decided.update((network, np.asarray(row, np.float64).tobytes()) for row in data[0])
            return walked(graph, leaves, data, *rest)

        def counting(**fields):
            self.certified += 1
            return certify(**fields)

        monkeypatch.setattr(decisions, "_by_bounds", counted)
        monkeypatch.setattr(certificate, "JacobianCertificate", counting)

    def of(self, params, x) -> tuple[set[int], int]:
        """How often the samples were decided (one number where all are alike), and how many
        ranks were certified.
        """
        network = b"".join(
            np.asarray(leaf, np.float64).tobytes() for leaf in jax.tree.leaves(params)
        )
        return {
            self.decided[network, row.tobytes()] for row in np.asarray(x, np.float64)
        }, self.certified


@pytest.fixture
def asked(monkeypatch):
    return Asked(monkeypatch)


@pytest.fixture(autouse=True)
def exact_sections(monkeypatch):
    """Without the sections that are singular values in float64: they ask nothing of this, and
    take the most time.
    """
    asking = [s for s in sections.SECTIONS if s.field not in ("float64", "float32", "spectrum")]
    monkeypatch.setattr(sys.modules["neuromanifold.inspection.inspect"], "SECTIONS", asking)


VERBS = {
    "inspect": (nm.inspect, 1),
    "account": (nm.dimension_account, 1),
    "reduce": (nm.reduce_width, 0),
    "bounds": (nm.dimension_bounds, 0),
    "rank": (lambda f, params, x: nm.functional_dimension(f, params, x, exact=True), 1),
    "units": (lambda f, params, x: nm.fixed_neurons(f, params, x, exact=True), 0),
}


@pytest.mark.parametrize("subject", SUBJECTS)
@pytest.mark.parametrize("verb", VERBS)
def test_bends_are_decided_once_and_the_rank_is_certified_once(verb, subject, asked, key, rng):
    f, params = SUBJECTS[subject](key)
    x, (call, ranks) = rng.normal(size=(14, 2)), VERBS[verb]
    call(f, params, x)
    assert asked.of(params, x) == ({1}, ranks)
    assert (
        max(asked.decided.values()) == 1
    )  # nor is any other input, or any other network, decided twice


def test_the_ranks_of_single_layers_share_the_bends(asked, key, rng):
    params, x = NET.init(key=key), rng.normal(size=(14, 2))
    alone = nm.functional_dimension(NET, params, x, exact=True, by_layer=True)
    assert asked.of(params, x) == ({1}, len(alone))
    for name, rank in alone.items():
        assert int(rank) == int(nm.functional_dimension(NET, params, x, exact=True, wrt=name))


def test_two_calls_decide_twice_and_are_seen(asked, key, rng):
    """What the counter would show if a verb asked anew."""
    params, x = NET.init(key=key), rng.normal(size=(14, 2))
    nm.functional_dimension(NET, params, x, exact=True)
    nm.dimension_account(NET, params, x)
    assert asked.of(params, x) == ({2}, 2)


def test_what_is_shared_is_what_each_verb_says_alone(key, rng):
    params, x = NET.init(key=key), rng.normal(size=(14, 2))
    found, account = nm.inspect(NET, params, x), nm.dimension_account(NET, params, x)
    assert int(found.exact) == int(account.functional) == account.chain[0]
    assert found.account.rows == account.rows
    assert str(found.reduction) == str(nm.reduce_width(NET, params, x))
    assert [len(layer.linear) for layer in account.equivalence.layers] == [
        layer.active for layer in found.layers
    ]
    assert [len(layer.inactive) for layer in account.equivalence.layers] == [
        layer.inactive for layer in found.layers
    ]


def test_a_second_inspection_reads_no_function_and_compiles_nothing(key, rng):
    readings = []

    def f(params, x):
        readings.append(np.shape(x))
        return network(params, x)

    params, x = weights(key), rng.normal(size=(6, 2))
    y = rng.normal(size=(6, 1))
    nm.inspect(f, params, x, y)
    assert readings
    readings.clear()
    with compilations() as compiled:
        nm.inspect(f, params, x, y)
    assert not readings and not compiled
    with compilations() as compiled:  # of another shape it is read again
        nm.inspect(f, params, x[:4], y[:4])
    assert readings and compiled
