# %% [markdown]
# # What a CNN's parameters do
#
# Any JAX function is a network. Here a small convolutional one, written by hand, learns to tell handwritten noughts, ones and twos apart (8×8 pixels); then we ask exactly how many of its
# parameter directions change the function on the data, before and after, and where the others went.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax

import neuromanifold as nm

digits = nm.data.load("digits")
numbers = np.asarray(digits.y).argmax(axis=1)
chosen = np.flatnonzero(numbers < 3)[:300]
images = np.asarray(digits.x, "float32")[chosen].reshape(-1, 8, 8, 1)
labels = np.eye(3, dtype="float32")[numbers[chosen]]


def network(params, x):
    """Convolution, ReLU, max-pooling, a dense layer."""
    h = jax.lax.conv_general_dilated(
        x, params["kernel"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    h = jax.nn.relu(h + params["bias"])
    h = jax.lax.reduce_window(h, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return h.reshape(len(x), -1) @ params["dense"] + params["shift"]


keys = jax.random.split(jax.random.key(0), 2)
start = {
    "kernel": jax.random.normal(keys[0], (3, 3, 1, 2)) / 3,
    "bias": jnp.zeros(2),
    "dense": jax.random.normal(keys[1], (32, 3)) / 6,
    "shift": jnp.zeros(3),
}
print("parameters", sum(leaf.size for leaf in start.values()))
graph = nm.graph.trace(network, start, images[:2])
print("piecewise linear", graph.piecewise_linear, "· exact arithmetic", graph.exact)

# %%
optimizer = optax.adam(1e-2)


@jax.jit
def step(params, state):
    grads = jax.grad(lambda p: nm.losses.cross_entropy(network(p, images), labels))(params)
    updates, state = optimizer.update(grads, state, params)
    return optax.apply_updates(params, updates), state


trained, state = start, optimizer.init(start)
for _ in range(150):
    trained, state = step(trained, state)
right = float(np.mean(network(trained, images).argmax(1) == labels.argmax(1)))
print(f"training accuracy {right:.0%}")

# %% [markdown]
# **The functional dimension, exactly.** Floating-point numbers are rational, so at these parameters the Jacobian is a rational matrix and its rank a fact, not a matter of a threshold.

# %%
few = images[:80]
for name, params in (("before", start), ("after", trained)):
    rank = nm.functional_dimension(network, params, few, exact=True)
    print(
        f"{name}: {int(rank)} of {sum(leaf.size for leaf in params.values())}; {rank.certificate}"
    )

# %% [markdown]
# After training two directions do nothing, and both are known by name: a channel's kernel and bias may be multiplied by $c > 0$ and its rows of the dense layer divided by it, since ReLU and max-pooling let $c$ pass.
#
# **How it grows with the sample**, and how the tangent kernel's spectrum falls. Each image brings three outputs, so three dimensions at most.

# %%
counts = (5, 10, 20, 40, 80)
growth = {
    name: [
        int(nm.functional_dimension(network, params, few[:count], exact=True)) for count in counts
    ]
    for name, params in (("before", start), ("after", trained))
}
spectra = {
    name: nm.spectrum(network, p, few).eigenvalues
    for name, p in (("before", start), ("after", trained))
}
print(growth)

# %% alt="Left: the exact functional dimension against the number of images. Right: eigenvalues of the tangent kernel before and after training"
figure, (left, right) = plt.subplots(1, 2, figsize=(6.4, 3))
for name in growth:
    left.plot(counts, growth[name], "o-", label=name)
    right.semilogy(np.maximum(spectra[name], 1e-12), label=name)
left.plot(counts, np.minimum(3 * np.array(counts), 119), "k:", label="what the sample allows")
left.set(xlabel="images", ylabel="functional dimension")
right.set(xlabel="index", ylabel="eigenvalue of the kernel", ylim=(1e-6, None))
left.legend()
right.legend()
plt.show()

# %% [markdown]
# **Everything at once**: units that are always on or off, regions, spectrum, verdict.

# %%
print(*nm.inspect(network, trained, few).verdict, sep="\n")

# %% [markdown]
# Read on: [Any network](../graph.md) for what is understood and what is refused, [Your own network](../your-network.md) for PyTorch and the others.
