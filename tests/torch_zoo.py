"""PyTorch networks of the usual kinds, small, written out: what `from_torch` must translate."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = x.view(x.size(0), -1)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


class BasicBlock(nn.Module):
    def __init__(self, fan_in: int, out: int, stride: int):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(fan_in, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.bn2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=True)
        short = nn.Sequential(nn.Conv2d(fan_in, out, 1, stride, bias=False), nn.BatchNorm2d(out))
        self.downsample = short if stride != 1 or fan_in != out else None

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += x if self.downsample is None else self.downsample(x)
        return self.relu(y)


class ResNet18(nn.Module):
    def __init__(self, width: int = 64, classes: int = 10):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width)
        self.relu, self.maxpool = nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        sizes = [
            width,
            width,
            width,
            2 * width,
            2 * width,
            4 * width,
            4 * width,
            8 * width,
            8 * width,
        ]
        pairs = zip(sizes[:-1], sizes[1:], strict=True)
        self.layers = nn.Sequential(*(BasicBlock(a, b, 1 + (a != b)) for a, b in pairs))
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d((1, 1)), nn.Linear(8 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layers(self.maxpool(self.relu(self.bn1(self.conv1(x)))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class Attention(nn.Module):
    def __init__(self, *, need_weights: bool):
        super().__init__()
        self.attention, self.need_weights = (
            nn.MultiheadAttention(8, 2, batch_first=True),
            need_weights,
        )

    def forward(self, x: Tensor) -> Any:
        y, weights = self.attention(x, x, x, need_weights=self.need_weights)
        return (y, weights) if self.need_weights else y


class GPTBlock(nn.Module):
    def __init__(self, d: int, heads: int):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        n, t, d = x.shape
        parts = self.qkv(self.ln1(x)).split(d, dim=2)
        q, k, v = (part.view(n, t, self.heads, d // self.heads).transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.dropout(self.proj(y.transpose(1, 2).contiguous().view(n, t, d)))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    """A language model whose output layer is its embedding."""

    def __init__(
        self, vocabulary: int = 17, d: int = 16, heads: int = 2, depth: int = 2, length: int = 8
    ):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, d), nn.Embedding(length, d)
        self.blocks = nn.ModuleList(GPTBlock(d, heads) for _ in range(depth))
        self.ln, self.head = nn.LayerNorm(d), nn.Linear(d, vocabulary, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x))


class Recurrent(nn.Module):
    def __init__(self, kind: Any, **options: Any):
        super().__init__()
        self.rnn = kind(3, 5, batch_first=True, **options)
        self.head = nn.Linear(
            10 if options.get("bidirectional") else options.get("proj_size", 5), 2
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(x)[0])


class SwiGLU(nn.Module):
    def __init__(self, d: int = 8):
        super().__init__()
        self.norm = nn.RMSNorm(d)
        self.gate, self.up, self.down = (
            nn.Linear(a, b, bias=False) for a, b in [(d, 16), (d, 16), (16, d)]
        )

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class ViT(nn.Module):
    def __init__(self, d: int = 16, patch: int = 4, size: int = 8, classes: int = 5):
        super().__init__()
        self.patches = nn.Conv2d(3, d, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, d))
        self.position = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, d) * 0.02)
        layer = nn.TransformerEncoderLayer(d, 2, 32, 0.0, F.gelu, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.position
        return self.head(self.norm(self.encoder(x))[:, 0])


def convolution(
    a: int, b: int, kernel: int, groups: int = 1, activation: Any = None
) -> nn.Sequential:
    parts = [nn.Conv2d(a, b, kernel, 1, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(b)]
    return nn.Sequential(*parts, *([] if activation is None else [activation]))


class MobileNetV3Block(nn.Module):
    """Inverted residual with squeeze and excitation."""

    def __init__(self, c: int = 8, expanded: int = 16):
        super().__init__()
        self.expand = convolution(c, expanded, 1, activation=nn.Hardswish(inplace=True))
        self.depthwise = convolution(expanded, expanded, 5, expanded, nn.Hardswish(inplace=True))
        self.pool, self.fc1, self.fc2 = (
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(expanded, 4, 1),
            nn.Conv2d(4, expanded, 1),
        )
        self.project = convolution(expanded, c, 1)
        self.gate: Callable[[Tensor], Tensor] = F.hardsigmoid

    def forward(self, x: Tensor) -> Tensor:
        y = self.depthwise(self.expand(x))
        return x + self.project(y * self.gate(self.fc2(F.relu(self.fc1(self.pool(y))))))


class ConvNeXtBlock(nn.Module):
    def __init__(self, d: int = 8):
        super().__init__()
        self.depthwise, self.norm = (
            nn.Conv2d(d, d, 7, padding=3, groups=d),
            nn.LayerNorm(d, eps=1e-6),
        )
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
        self.gamma = nn.Parameter(torch.full((d,), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + (self.gamma * self.down(F.gelu(self.up(y)))).permute(0, 3, 1, 2)


class Classifier(nn.Module):
    """In the style of Hugging Face: named inputs, a mask, a mapping for output, an optional
    cache.
    """

    def __init__(self, vocabulary: int = 11, d: int = 8):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, d, padding_idx=0)
        self.query, self.key, self.value = (nn.Linear(d, d) for _ in range(3))
        self.head = nn.Linear(d, 3)
        self.softmax_dtype = torch.float32

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, use_cache: bool = True
    ) -> Any:
        x = self.embedding(input_ids)
        bias = (1.0 - attention_mask[:, None, :].to(self.softmax_dtype)) * torch.finfo(
            torch.float32
        ).min
        scores = self.query(x) @ self.key(x).transpose(1, 2) + bias
        weights = torch.softmax(scores, dim=-1, dtype=self.softmax_dtype)
        hidden = weights.to(x.dtype) @ self.value(x)
        pooled = (hidden * attention_mask[..., None]).sum(1) / attention_mask.sum(1, keepdim=True)
        output = {"logits": self.head(pooled), "hidden_states": (x, hidden)}
        return {**output, "cache": object()} if use_cache else output


@dataclass(frozen=True)
class Example:
    """A network and how to draw n of its inputs."""

    make: Callable[[], nn.Module]
    draw: Callable[[int], Any]

    def module(self) -> nn.Module:
        torch.manual_seed(0)
        return self.make().eval()


def images(channels: int, size: int) -> Callable[[int], Tensor]:
    return lambda n: torch.randn(n, channels, size, size)


def sequences(length: int, d: int) -> Callable[[int], Tensor]:
    return lambda n: torch.randn(n, length, d)


def tokens(n: int) -> Tensor:
    return torch.randint(0, 17, (n, 8))


def masked(n: int) -> dict[str, Tensor]:
    ids = torch.randint(1, 11, (n, 6))
    mask = (torch.arange(6) < torch.randint(1, 7, (n, 1))).long()
    return {"input_ids": ids * mask, "attention_mask": mask}


def trained_batchnorm() -> nn.Module:
    """Running moments that are not those of a new layer."""
    module = nn.Sequential(
        nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 2)
    )
    for _ in range(3):
        module(2 + 3 * torch.randn(16, 3))
    return module


ENCODER = {"d_model": 8, "nhead": 2, "dim_feedforward": 16, "batch_first": True}
ZOO = {
    "MLP": Example(
        lambda: nn.Sequential(
            nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2)
        ),
        lambda n: torch.randn(n, 3),
    ),
    "LeNet": Example(LeNet, images(1, 28)),
    "BatchNorm": Example(trained_batchnorm, lambda n: torch.randn(n, 3)),
    "ResNet-18": Example(lambda: ResNet18(width=8), images(3, 32)),
    "encoder, ReLU": Example(lambda: nn.TransformerEncoderLayer(**ENCODER), sequences(5, 8)),
    "encoder, GELU first": Example(
        lambda: nn.TransformerEncoderLayer(**ENCODER, activation="gelu", norm_first=True),
        sequences(5, 8),
    ),
    "attention": Example(lambda: Attention(need_weights=False), sequences(5, 8)),
    "attention, weights": Example(lambda: Attention(need_weights=True), sequences(5, 8)),
    "GPT": Example(GPT, tokens),
    "GRU": Example(lambda: Recurrent(nn.GRU), sequences(6, 3)),
    "LSTM": Example(lambda: Recurrent(nn.LSTM, num_layers=2, bidirectional=True), sequences(6, 3)),
    "SwiGLU": Example(SwiGLU, sequences(4, 8)),
    "depthwise": Example(
        lambda: nn.Sequential(
            nn.Conv2d(4, 8, 3, groups=4, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(8, 4, 1)
        ),
        images(4, 8),
    ),
    "ViT": Example(ViT, images(3, 8)),
    "MobileNetV3": Example(MobileNetV3Block, images(8, 6)),
    "ConvNeXt": Example(ConvNeXtBlock, images(8, 8)),
}
