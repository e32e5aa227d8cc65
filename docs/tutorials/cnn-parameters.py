# %% [markdown]
# # What a CNN's parameters do
#
# Any JAX function is a network. Here a small convolutional network, written by hand, learns to tell handwritten noughts, ones and twos apart (8×8 pixels). How many of its parameter
# directions change the function on the data, before and after training? And why do the others change nothing?

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
# **The functional dimension, exactly.** Floating-point numbers are rational, so the Jacobian at these parameters is a rational matrix. Its rank needs no threshold.

# %%
few = images[:80]
for name, params in (("before", start), ("after", trained)):
    rank = nm.functional_dimension(network, params, few, exact=True)
    print(
        f"{name}: {int(rank)} of {sum(leaf.size for leaf in params.values())}; {rank.certificate}"
    )

# %% [markdown]
# Before training the biases are 0, so where a patch of the image is black the input of the ReLU is exactly 0; the certificate counts such kinks.
# After training two directions change nothing, one for each channel: multiply the channel's kernel and bias by $c > 0$ and divide its rows of the dense layer by $c$. ReLU and max-pooling let $c$ pass.
#
# **How does it grow with the sample**, and how does the spectrum of the tangent kernel fall? Each image has three outputs, so it adds at most three dimensions.

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
left.set(xlabel="images", ylabel="functional dimension", xlim=(0, 130))
right.set(xlabel="index", ylabel="eigenvalue of the kernel", ylim=(1e-6, None))
left.legend(loc="lower right", fontsize="small")
right.legend()
plt.show()

# %% [markdown]
# **Everything at once.** `nm.inspect` looks at the units, the linear regions, the spectrum and more, and says it in three sentences.

# %%
print(*nm.inspect(network, trained, few).verdict, sep="\n")

# %% [markdown]
# Read on: [Any network](../graph.md) says which operations the library knows, [Your own network](../your-network.md) how to bring a network of PyTorch or another library.
