"""The pages that the browser tests open: reports of a perceptron and of a small CNN, one with
hostile names, and the ledger.
"""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import neuromanifold as nm
import neuromanifold_papers as papers
from neuromanifold.inspection import checkpoints
from neuromanifold_papers.ledger_page import write_ledger

HOSTILE = (
    "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1>\"' "
    "onload=window.hacked=1 &lt;"
)


def _cnn(params, x):
    h = (
        jax.lax.conv_general_dilated(x, params["conv"], (1, 1), "SAME")
        + params["bias"][:, None, None]
    )
    return jax.nn.relu(h).mean((2, 3)) @ params["head"]


def write_pages(folder: Path) -> dict[str, Path]:
    """Name → path of each page."""
    rng, net = np.random.default_rng(0), nm.MLP((1, 6, 6, 1))
    x = np.linspace(-2.0, 2.0, 60)[:, None]
    params = net.init(key=jax.random.key(3))
    for step in (0, 10, 20):
        moved = jax.tree.map(lambda a, t=step: np.asarray(a) * (1 + 0.01 * t), params)
        nm.save(folder / "weights" / f"step-{step}.safetensors", net, moved)
    timeline = checkpoints(folder / "weights", x, np.sin(x))
    found = nm.inspect(net, params, x, np.sin(x))
    kernel = {
        "conv": rng.normal(size=(5, 1, 3, 3)),
        "bias": np.array([-9.0, 0, 0, 0, 9]),
        "head": rng.normal(size=(5, 2)),
    }
    convolution = nm.inspect(
        _cnn, jax.tree.map(jnp.asarray, kernel), rng.normal(size=(12, 1, 4, 4))
    )
    layers = [dataclasses.replace(layer, name=HOSTILE) for layer in found.layers or ()]
    hostile = dataclasses.replace(
        found, model=HOSTILE, layers=tuple(layers), tensors=((HOSTILE, (2,)),)
    )
    evidence = [dataclasses.replace(_evidence(), id=HOSTILE, statement=HOSTILE), _evidence()]
    return {
        "perceptron": nm.report.write(found, folder / "perceptron", timeline=timeline),
        "convolution": nm.report.write(convolution, folder / "convolution"),
        "hostile": nm.report.write(hostile, folder / "hostile", title=HOSTILE),
        "ledger": write_ledger(evidence, ["holds", "holds"], folder / "ledger.html"),
    }


def _evidence() -> papers.Evidence:
    return papers.examine(papers.select("complexity", ("Ass 3.1",))[0], draws=0)
