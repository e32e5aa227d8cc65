"""Networks of the field as torch modules, at any width: ResNet-18, VGG-11 with batch
normalisation, MobileNetV3-small, GPT-2.

torchvision is not among the dependencies; these have its layers, names and shapes.
"""

from typing import Any

import torch
from torch import nn


class BasicBlock(nn.Module):
    """Two convolutions and a shortcut."""

    def __init__(self, inside: int, planes: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, planes, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample: Any = None
        if stride != 1 or inside != planes:
            self.downsample = nn.Sequential(
                nn.Conv2d(inside, planes, 1, stride, bias=False), nn.BatchNorm2d(planes)
            )

    def forward(self, x: Any) -> Any:
        shortcut = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(out)) + shortcut)


class ResNet18(nn.Module):
    """Stages of two basic blocks, each twice as wide as the one before."""

    def __init__(self, width: int = 64, classes: int = 1000, stages: int = 4) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        inside, planes = width, width
        self.stages = stages
        for stage in range(stages):
            planes = width * 2**stage
            layer = nn.Sequential(
                BasicBlock(inside, planes, 1 if stage == 0 else 2), BasicBlock(planes, planes, 1)
            )
            setattr(self, f"layer{stage + 1}", layer)
            inside = planes
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(planes, classes)

    def forward(self, x: Any) -> Any:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for stage in range(self.stages):
            x = getattr(self, f"layer{stage + 1}")(x)
        return self.fc(torch.flatten(self.avgpool(x), 1))


class VGG11(nn.Module):
    """Convolutions with batch normalisation, then three linear layers."""

    def __init__(self, width: int = 64, classes: int = 1000, hidden: int = 4096) -> None:
        super().__init__()
        layers: list[Any] = []
        inside = 3
        for step in (1, "M", 2, "M", 4, 4, "M", 8, 8, "M", 8, 8, "M"):
            if isinstance(step, str):
                layers.append(nn.MaxPool2d(2, 2))
                continue
            conv = nn.Conv2d(inside, width * step, 3, padding=1)
            layers += [conv, nn.BatchNorm2d(width * step), nn.ReLU(inplace=True)]
            inside = width * step
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d((7, 7))
        self.classifier = nn.Sequential(
            nn.Linear(inside * 49, hidden),
            nn.ReLU(True),
            nn.Dropout(),
            nn.Linear(hidden, hidden),
            nn.ReLU(True),
            nn.Dropout(),
            nn.Linear(hidden, classes),
        )

    def forward(self, x: Any) -> Any:
        return self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))


def _rounded(channels: float) -> int:
    """The nearest multiple of 8, not more than a tenth below."""
    found = max(8, int(channels + 4) // 8 * 8)
    return found + 8 if found < 0.9 * channels else found


class SqueezeExcitation(nn.Module):
    """Channels weighed by a function of their means."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1 = nn.Conv2d(channels, squeezed, 1)
        self.fc2 = nn.Conv2d(squeezed, channels, 1)
        self.activation, self.scale_activation = nn.ReLU(), nn.Hardsigmoid()

    def forward(self, x: Any) -> Any:
        scale = self.fc2(self.activation(self.fc1(self.avgpool(x))))
        return self.scale_activation(scale) * x


class InvertedResidual(nn.Module):
    """Expansion, a depthwise convolution, squeeze and excitation, projection."""

    def __init__(
        self,
        inside: int,
        kernel: int,
        expanded: int,
        out: int,
        squeezes: bool,
        hard: bool,
        stride: int,
    ) -> None:
        super().__init__()
        self.use_res_connect = stride == 1 and inside == out
        activation = nn.Hardswish if hard else nn.ReLU
        layers: list[Any] = []
        if expanded != inside:
            layers.append(_normalised(inside, expanded, 1, 1, 1, activation))
        layers.append(_normalised(expanded, expanded, kernel, stride, expanded, activation))
        if squeezes:
            layers.append(SqueezeExcitation(expanded, _rounded(expanded // 4)))
        layers.append(_normalised(expanded, out, 1, 1, 1, None))
        self.block = nn.Sequential(*layers)

    def forward(self, x: Any) -> Any:
        return self.block(x) + x if self.use_res_connect else self.block(x)


def _normalised(
    inside: int, out: int, kernel: int, stride: int, groups: int, activation: Any
) -> nn.Sequential:
    conv = nn.Conv2d(inside, out, kernel, stride, (kernel - 1) // 2, groups=groups, bias=False)
    norm = nn.BatchNorm2d(out, eps=0.001, momentum=0.01)
    return nn.Sequential(conv, norm, *([] if activation is None else [activation(inplace=True)]))


_SMALL = (
    (3, 16, 16, True, False, 2),
    (3, 72, 24, False, False, 2),
    (3, 88, 24, False, False, 1),
    (5, 96, 40, True, True, 2),
    (5, 240, 40, True, True, 1),
    (5, 240, 40, True, True, 1),
    (5, 120, 48, True, True, 1),
    (5, 144, 48, True, True, 1),
    (5, 288, 96, True, True, 2),
    (5, 576, 96, True, True, 1),
    (5, 576, 96, True, True, 1),
)
"""Kernel, expansion, width, squeeze, hard swish, stride of each block."""


class MobileNetV3Small(nn.Module):
    """Inverted residuals with depthwise convolutions; `blocks` of them."""

    def __init__(self, classes: int = 1000, blocks: int = len(_SMALL), hidden: int = 1024) -> None:
        super().__init__()
        layers: list[Any] = [_normalised(3, 16, 3, 2, 1, nn.Hardswish)]
        inside = 16
        for kernel, expanded, out, squeezes, hard, stride in _SMALL[:blocks]:
            layers.append(InvertedResidual(inside, kernel, expanded, out, squeezes, hard, stride))
            inside = out
        layers.append(_normalised(inside, 6 * inside, 1, 1, 1, nn.Hardswish))
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(
            nn.Linear(6 * inside, hidden),
            nn.Hardswish(inplace=True),
            nn.Dropout(p=0.2),
            nn.Linear(hidden, classes),
        )

    def forward(self, x: Any) -> Any:
        return self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))


def trained_like(module: Any, seed: int) -> Any:
    """The module in evaluation mode with statistics, gains and shifts as after a training."""
    generator = torch.Generator().manual_seed(seed)

    def normal(like: Any, mean: float, deviation: float) -> Any:
        return mean + deviation * torch.randn(like.shape, generator=generator)

    with torch.no_grad():
        for layer in module.modules():
            if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
                layer.running_mean.copy_(normal(layer.running_mean, 0.0, 0.3))
                layer.running_var.copy_(normal(layer.running_var, 0.0, 0.2).exp())
                layer.weight.copy_(normal(layer.weight, 0.0, 0.2).exp())
                layer.bias.copy_(normal(layer.bias, 0.2, 0.3))
    return module.eval()
