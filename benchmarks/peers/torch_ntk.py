"""PyTorch's two ways to an empirical NTK, after its `torch.func` tutorial: Jacobian contraction
and NTK–vector products.
"""

from collections.abc import Callable

import torch
import torch_mlp
from protocol import serve
from torch.func import functional_call, jacrev, jvp, vjp, vmap

Single = Callable[[dict[str, torch.Tensor], torch.Tensor], torch.Tensor]


def load_single(arrays: str) -> tuple[Single, dict[str, torch.Tensor], torch.Tensor]:
    """The function of one sample, its parameters, and the samples."""
    net, data = torch_mlp.load(arrays)
    params = {name: parameter.detach() for name, parameter in net.named_parameters()}
    return (
        lambda p, sample: functional_call(net, p, (sample.unsqueeze(0),)).squeeze(0),
        params,
        data["x"],
    )


def contraction(arrays: str, chunk: int) -> Callable[[], torch.Tensor]:
    """Per-sample Jacobians by `vmap(jacrev)`, `chunk` samples at a time, kept, then contracted
    over the parameters.
    """
    f, params, x = load_single(arrays)

    def jacobians(samples: torch.Tensor) -> list[torch.Tensor]:
        return [leaf.flatten(2) for leaf in vmap(jacrev(f), (None, 0))(params, samples).values()]

    def contract(left: list[torch.Tensor], right: list[torch.Tensor]) -> torch.Tensor:
        return sum(torch.einsum("Naf,Mbf->NMab", a, b) for a, b in zip(left, right, strict=True))

    def kernel(samples: torch.Tensor) -> torch.Tensor:
        chunks = [jacobians(part) for part in samples.split(chunk)]
        return torch.cat(
            [torch.cat([contract(left, right) for right in chunks], dim=1) for left in chunks]
        )

    kernel(x[:2])
    return lambda: kernel(x)


def products(arrays: str, chunk: int) -> Callable[[], torch.Tensor]:
    """For each pair of samples and each output a VJP followed by a JVP, `chunk` pairs at a time;
    no Jacobian is stored.
    """
    f, params, x = load_single(arrays)
    basis = torch.eye(f(params, x[0]).numel())

    def pair(x1: torch.Tensor, x2: torch.Tensor) -> torch.Tensor:
        _, pullback = vjp(lambda p: f(p, x1), params)

        def row(cotangent: torch.Tensor) -> torch.Tensor:
            return jvp(lambda p: f(p, x2), (params,), pullback(cotangent))[1]

        return vmap(row)(basis)

    def kernel(samples: torch.Tensor) -> torch.Tensor:
        against_all = vmap(pair, (None, 0), chunk_size=chunk)
        return torch.stack([against_all(sample, samples) for sample in samples])

    kernel(x[:2])
    return lambda: kernel(x)


if __name__ == "__main__":
    serve(
        {"contraction": contraction, "products": products},
        summary=lambda kernel: float(torch.linalg.norm(kernel.double())),
    )
