"""Which axes of parameters are one axis: products, direct sums, groups, selections."""

import jax
import jax.numpy as jnp
import numpy as np

import neuromanifold as nm
from neuromanifold.graph.axes import Labels, Place, axis_labels

H, D, E = 2, 3, 5


def attended(q, k, v, o):
    scores = jax.nn.softmax(jnp.einsum("nthd,nshd->nhts", q, k))
    return jnp.einsum("nhts,nshd->nthd", scores, v).reshape(*q.shape[:2], H * D) @ o


def split_heads(params, x):
    """Queries, keys and values as three parts of one product."""
    parts = jnp.split(x @ params["qkv"] + params["b"], 3, axis=-1)
    return attended(*(part.reshape(*x.shape[:2], H, D) for part in parts), params["out"])


def selected_heads(params, x):
    """The same, the three as places of an axis."""
    y = (x @ params["qkv"] + params["b"]).reshape(*x.shape[:2], 3, H, D).transpose(2, 0, 1, 3, 4)
    return attended(*y, params["out"])


ATTENTION = {"qkv": np.ones((E, 3 * H * D)), "b": np.ones(3 * H * D), "out": np.ones((H * D, E))}


def labelled(f, params, x) -> tuple[Labels, dict[str, list[list[Place]]]]:
    graph = nm.graph.trace(f, params, x)
    labels = axis_labels(graph.program)
    places = [list(map(labels.places, axes)) for axes in labels.inputs]
    return labels, dict(zip(graph.parameters, places, strict=False))


def starts(places: list[Place], atom: int) -> list[int]:
    return [place.start for place in places if place.atom == atom]


def test_queries_and_keys_share_an_axis_and_values_have_one_of_their_own():
    for f in (split_heads, selected_heads):
        labels, places = labelled(f, ATTENTION, np.ones((2, 4, E)))
        heads, values = (place.atom for place in places["out"][0])
        for leaf, axis in (("qkv", 1), ("b", 0)):
            assert starts(places[leaf][axis], heads) == [0, 6, 12]
            assert starts(places[leaf][axis], values) == [12]
            [own] = {p.atom for p in places[leaf][axis] if p.size == D} - {values}
            assert starts(places[leaf][axis], own) == [0, 6]
        assert not {heads, values} & labels.rigid


def test_what_several_use_without_the_slow_axis_is_not_taken_apart():
    """A gain on the merged axis after the selection's axis is summed over: one axis for all."""

    def f(params, x):
        y = (x @ params["w"]).reshape(len(x), 3, 4)
        return (y[:, 0] + y.sum(axis=1) * params["g"]) @ params["out"]

    params = {"w": np.ones((2, 12)), "g": np.ones(4), "out": np.ones((4, 2))}
    labels, places = labelled(f, params, np.ones((5, 2)))
    assert not labels.copies
    [atom] = {place.atom for place in places["g"][0]}
    assert atom in {place.atom for place in places["w"][1]}


def test_concatenated_channels_are_read_as_pieces():
    def f(params, x):
        a = jax.nn.relu(x @ params["a"])
        return jnp.concatenate([a, jax.nn.relu(a @ params["b"])], axis=-1) @ params["c"]

    params = {"a": np.ones((2, 4)), "b": np.ones((4, 3)), "c": np.ones((7, 2))}
    labels, places = labelled(f, params, np.ones((5, 2)))
    whole, first, second = places["c"][0]
    assert (whole.size, first.start, second.start) == (7, 0, 4)
    assert (first.atom, second.atom) == (places["a"][1][0].atom, places["b"][1][0].atom)
    assert whole.atom in labels.rigid
    assert first.atom not in labels.rigid


def test_groups_of_a_convolution_are_an_axis():
    def f(params, x):
        y = jax.nn.relu(jax.lax.conv_general_dilated(x, params["w"], (1, 1), "SAME"))
        for name, groups in (("g", 2), ("depth", 6)):
            y = jax.lax.conv_general_dilated(
                y, params[name], (1, 1), "SAME", feature_group_count=groups
            )
        return y.mean((2, 3)) @ params["out"]

    shapes = {"w": (4, 3, 3, 3), "g": (6, 2, 3, 3), "depth": (6, 1, 3, 3), "out": (6, 2)}
    params = {name: np.ones(shape) for name, shape in shapes.items()}
    _, places = labelled(f, params, np.ones((5, 3, 8, 8)))
    groups, inside = places["w"][0]
    assert (groups.size, inside.size) == (2, 2)
    assert inside.atom == places["g"][1][0].atom
    outside = [place.atom for place in places["g"][0]]
    assert outside[0] == groups.atom
    for leaf in ("depth", "out"):
        assert [place.atom for place in places[leaf][0]] == outside


def test_a_part_with_gaps_is_rigid():
    def f(params, x):
        return (x @ params["w"])[:, ::2] @ params["out"]

    labels, places = labelled(f, {"w": np.ones((2, 4)), "out": np.ones((2, 3))}, np.ones((5, 2)))
    assert {place.atom for place in places["w"][1] + places["out"][0]} <= labels.rigid
