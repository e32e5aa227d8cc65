# %% [markdown]
# # A transformer block's symmetries
#
# Which changes of the weights do not change a transformer block's function, for *all* inputs? Some are known: within a head, queries and keys meet only in the products $QK^\top$, so that
# $(W_Q, W_K) \mapsto (W_QA, W_KA^{-\top})$ changes nothing, and likewise $(W_V, W_O) \mapsto (W_VB, B^{-1}W_O)$; every ReLU neuron can be scaled. Is that all?
# `nm.symmetry.discover` knows none of this. It looks for all affine vector fields on the weights that do not change the function, and reads their number off a spectrum.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import neuromanifold as nm

width, heads, size, hidden, tokens = 4, 2, 2, 5, 3


def block(params, x):
    """Attention with residual sum, then two dense layers with residual sum; x is (samples, tokens, width)."""
    queries, keys, values = (
        jnp.einsum("btw,whs->bths", x, params[name]) for name in ("query", "key", "value")
    )
    weights = jax.nn.softmax(jnp.einsum("bths,bqhs->bhtq", queries, keys), axis=-1)
    x = x + jnp.einsum("bhtq,bqhs,hsw->btw", weights, values, params["out"])
    return x + jax.nn.relu(x @ params["up"] + params["bias"]) @ params["down"]


rng = np.random.default_rng(0)
shapes = {name: (width, heads, size) for name in ("query", "key", "value")}
shapes |= {
    "out": (heads, size, width),
    "up": (width, hidden),
    "bias": (hidden,),
    "down": (hidden, width),
}
params = {name: rng.standard_normal(shape) / 2 for name, shape in shapes.items()}
x = rng.standard_normal((40, tokens, width))
print("parameters", sum(leaf.size for leaf in params.values()))

# %%
found = nm.symmetry.discover(block, params, x[:2], key=jax.random.key(0))
print(found)
expected = heads * (size**2 + size**2) + hidden
print(f"GL({size}) twice in each of {heads} heads, and {hidden} scalings: {expected}")
assert int(found.orbit) == expected and found.decided

# %% [markdown]
# There are no others among affine fields. Does the sample agree? The functional dimension is at most $D$ minus the dimension of the orbit, and reaches it when the sample sees everything:

# %%
rank = nm.functional_dimension(block, params, x)
total = sum(leaf.size for leaf in params.values())
print(
    f"functional dimension {int(rank)} of {total}, gap {float(rank.gap):.0e}; {total} − {expected} = {total - expected}"
)

# %% [markdown]
# So a symmetry explains every direction that does nothing. Take a step along one of them, by hand, and compare with a step of the same size elsewhere:

# %% alt="Change of the output against the size of a step: nothing along a symmetry of queries and keys, proportional to the step in a random direction"
mix = rng.standard_normal((size, size))
sizes = np.geomspace(1e-4, 1, 13)
along, elsewhere = [], []
for step in sizes:
    with jax.enable_x64(True):
        turned = np.asarray(jax.scipy.linalg.expm(step * mix))
        moved = params | {
            "query": np.einsum("whs,sr->whr", params["query"], turned),
            "key": np.einsum("whs,rs->whr", params["key"], np.linalg.inv(turned)),
        }
        other = params | {"query": params["query"] + step * rng.standard_normal(shapes["query"])}
        along.append(np.abs(block(moved, x) - block(params, x)).max())
        elsewhere.append(np.abs(block(other, x) - block(params, x)).max())
figure, axis = plt.subplots(figsize=(6, 3.3))
axis.loglog(sizes, elsewhere, "o-", label="random direction")
axis.loglog(sizes, np.maximum(along, 1e-17), "s-", label="symmetry of queries and keys")
axis.set(xlabel="step", ylabel="largest change of an output")
axis.legend()
plt.show()

# %% [markdown]
# Read on: [Symmetry](../symmetry.md).
