"""Modules that nobody here wrote, and long ones as strangers write them: does `nm.from_torch` translate
them, is the kernel that of `torch.func`, and how long until the first answer?

    .venv-torch/bin/python benchmarks/strangers.py [--json FILE] [--inspect] [NAME …]

Those of transformers are tiny random configurations; timm, torchvision and torch_geometric are tried
where they can be imported. A line for each: processor seconds of conversion, of the first kernel and
of `torch.func`'s, outputs and kernel in float64 against PyTorch's; or the sentence of the refusal.
"""

import argparse
import contextlib
import copy
import gc
import json
import math
import resource
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import neuromanifold as nm

Made = tuple[nn.Module, Any] | tuple[nn.Module, Any, dict[str, Any]]
ZOO: dict[str, Callable[[], Made]] = {}


def stranger(make: Callable[[], Made]) -> Callable[[], Made]:
    """Enter a module under the name of the function that makes it."""
    ZOO[make.__name__.replace("_", " ")] = make
    return make


def images(channels: int = 3, size: int = 16, batch: int = 2) -> Tensor:
    return torch.randn(batch, channels, size, size)


def words(vocabulary: int = 30, length: int = 7, batch: int = 2) -> Tensor:
    return torch.randint(3, vocabulary, (batch, length))


# --- transformers: tiny random configurations -------------------------------------------------


class Taken(nn.Module):
    """One tensor of what a Hugging Face module returns."""

    def __init__(self, module: nn.Module, field: str, **options: Any):
        super().__init__()
        self.module, self.field, self.options = module, field, options

    def forward(self, x: Tensor) -> Tensor:
        return getattr(self.module(x, **self.options), self.field)


TEXT = dict(vocab_size=30, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
            intermediate_size=24, max_position_embeddings=16)  # fmt: skip
DECODER = {**TEXT, "num_key_value_heads": 1, "head_dim": 8}
VISION = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
              image_size=16, patch_size=8)  # fmt: skip
HUGGING_FACE: dict[str, tuple[str, dict[str, Any], Callable[[], Any], str]] = {
    "BERT": ("BertModel", TEXT, words, "pooler_output"),
    "RoBERTa": ("RobertaForSequenceClassification", {**TEXT, "pad_token_id": 1}, words, "logits"),
    "DistilBERT": (
        "DistilBertModel",
        dict(vocab_size=30, dim=16, n_layers=2, n_heads=2, hidden_dim=24, max_position_embeddings=16),
        words,
        "last_hidden_state",
    ),
    "ALBERT": ("AlbertModel", {**TEXT, "embedding_size": 8}, words, "pooler_output"),
    "ELECTRA": ("ElectraModel", {**TEXT, "embedding_size": 8}, words, "last_hidden_state"),
    "DeBERTa-v2": (
        "DebertaV2Model",
        {**TEXT, "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 4},
        words,
        "last_hidden_state",
    ),
    "GPT-2": (
        "GPT2LMHeadModel",
        dict(vocab_size=30, n_embd=16, n_layer=2, n_head=2, n_positions=16),
        words,
        "logits",
    ),
    "GPT-NeoX": ("GPTNeoXModel", TEXT, words, "last_hidden_state"),
    "OPT": (
        "OPTModel",
        dict(vocab_size=30, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, ffn_dim=24,
             max_position_embeddings=16, word_embed_proj_dim=16),
        words,
        "last_hidden_state",
    ),
    "BLOOM": ("BloomModel", dict(vocab_size=30, hidden_size=16, n_layer=2, n_head=2), words,
              "last_hidden_state"),
    "Llama": ("LlamaForCausalLM", DECODER, words, "logits"),
    "Mistral": ("MistralForCausalLM", {**DECODER, "sliding_window": 4}, words, "logits"),
    "Mixtral": (
        "MixtralForCausalLM", {**DECODER, "num_local_experts": 3, "num_experts_per_tok": 2}, words, "logits",
    ),
    "Qwen2": ("Qwen2ForCausalLM", DECODER, words, "logits"),
    "Qwen2-MoE": (
        "Qwen2MoeForCausalLM",
        {**DECODER, "num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 8,
         "shared_expert_intermediate_size": 8},
        words, "logits",
    ),
    "Gemma": ("GemmaForCausalLM", DECODER, words, "logits"),
    "Gemma-2": ("Gemma2ForCausalLM", DECODER, words, "logits"),
    "Phi": ("PhiForCausalLM", {**TEXT, "partial_rotary_factor": 0.5}, words, "logits"),
    "Falcon": ("FalconModel", dict(vocab_size=30, hidden_size=16, num_hidden_layers=2,
               num_attention_heads=2), words, "last_hidden_state"),
    "OLMo": ("OlmoForCausalLM", {k: v for k, v in DECODER.items() if k != "head_dim"}, words, "logits"),
    "T5 encoder": (
        "T5EncoderModel",
        dict(vocab_size=30, d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2),
        words, "last_hidden_state",
    ),
    "BART encoder": (
        "BartModel",
        dict(vocab_size=30, d_model=16, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=24,
             decoder_ffn_dim=24, encoder_attention_heads=2, decoder_attention_heads=2,
             max_position_embeddings=16, pad_token_id=1, bos_token_id=0, eos_token_id=2,
             decoder_start_token_id=2),
        words, "last_hidden_state",
    ),
    "ViT": ("ViTForImageClassification", VISION, images, "logits"),
    "DeiT": ("DeiTModel", VISION, images, "last_hidden_state"),
    "BEiT": ("BeitModel", {**VISION, "use_relative_position_bias": True}, images, "pooler_output"),
    "DINOv2": ("Dinov2Model", VISION, images, "last_hidden_state"),
    "Swin": (
        "SwinModel",
        dict(image_size=16, patch_size=2, embed_dim=8, depths=[2, 2], num_heads=[2, 2], window_size=4),
        images, "pooler_output",
    ),
    "ConvNeXt": ("ConvNextModel", dict(hidden_sizes=[8, 16], depths=[1, 1], num_stages=2, patch_size=2),
                 images, "pooler_output"),
    "SegFormer": (
        "SegformerForImageClassification",
        dict(num_encoder_blocks=2, depths=[1, 1], sr_ratios=[2, 1], hidden_sizes=[8, 16],
             patch_sizes=[3, 3], strides=[2, 2], num_attention_heads=[1, 2], mlp_ratios=[2, 2],
             decoder_hidden_size=8),
        images, "logits",
    ),
    "RegNet": ("RegNetModel", dict(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], groups_width=8),
               images, "pooler_output"),
    "Whisper encoder": (
        "WhisperEncoder",
        dict(num_mel_bins=6, d_model=16, encoder_layers=2, encoder_attention_heads=2, encoder_ffn_dim=24,
             max_source_positions=5),
        lambda: torch.randn(2, 6, 10), "last_hidden_state",
    ),
    "CLIP vision": ("CLIPVisionModelWithProjection", {**VISION, "projection_dim": 4}, images, "image_embeds"),
    "CLIP text": (
        "CLIPTextModelWithProjection",
        {**TEXT, "projection_dim": 4, "eos_token_id": 29, "bos_token_id": 28, "pad_token_id": 1},
        words, "text_embeds",
    ),
    "Wav2Vec2": (
        "Wav2Vec2Model",
        dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
             conv_dim=[8, 8], conv_stride=[4, 2], conv_kernel=[8, 3], num_conv_pos_embeddings=4,
             num_conv_pos_embedding_groups=2, num_feat_extract_layers=2),
        lambda: torch.randn(2, 100), "last_hidden_state",
    ),
    "Mamba": ("MambaForCausalLM", dict(vocab_size=30, hidden_size=16, state_size=4, num_hidden_layers=2),
              words, "logits"),
    "RWKV": ("RwkvModel", dict(vocab_size=30, hidden_size=16, num_hidden_layers=2, context_length=16),
             words, "last_hidden_state"),
    "PatchTST": (
        "PatchTSTForRegression",
        dict(num_input_channels=2, context_length=16, patch_length=4, patch_stride=4, d_model=8,
             num_hidden_layers=1, num_attention_heads=2, ffn_dim=12, num_targets=2),
        lambda: torch.randn(2, 16, 2), "regression_outputs",
    ),
    "Perceiver": (
        "PerceiverModel",
        dict(num_latents=4, d_latents=8, d_model=6, num_blocks=1, num_self_attends_per_block=1,
             num_self_attention_heads=2, num_cross_attention_heads=2),
        lambda: torch.randn(2, 5, 6), "last_hidden_state",
    ),
}  # fmt: skip


def hugging_face(name: str) -> Made:
    import transformers  # type: ignore[import-not-found]

    kind, options, draw, field = HUGGING_FACE[name]
    if kind == "WhisperEncoder":
        from transformers.models.whisper.modeling_whisper import WhisperEncoder as model
    else:
        model = getattr(transformers, kind)
    module = Taken(model(model.config_class(**options)), field)
    # PyTorch's grouped products know no float64: there the reference loops over the experts.
    return module, draw(), {"narrow": True} if "moe" in kind.lower() or kind[:4] == "Mixt" else {}


ZOO |= {f"HF {name}": (lambda name=name: hugging_face(name)) for name in HUGGING_FACE}


# --- timm, torchvision, torch_geometric --------------------------------------------------------

TIMM = ["test_resnet", "test_vit", "test_vit3", "test_efficientnet", "test_efficientnet_evos",
        "test_convnext", "test_byobnet", "test_nfnet", "test_mambaout", "test_maxvit"]  # fmt: skip


def timm_model(name: str) -> Made:
    import timm  # type: ignore[import-not-found]

    sized = {"img_size": 64} if "vit" in name else {}
    return timm.create_model(name, num_classes=3, **sized), images(size=64)


ZOO |= {f"timm {name}": (lambda name=name: timm_model(name)) for name in TIMM}


def torchvision_model(name: str) -> Made:
    import torchvision.models as m  # type: ignore[import-not-found]

    makes: dict[str, Callable[[], nn.Module]] = {
        "DenseNet": lambda: m.DenseNet(4, (2, 2), 8, num_classes=3),
        "MobileNetV2": lambda: m.MobileNetV2(
            3, 0.25, [[1, 16, 1, 1], [6, 24, 2, 2], [6, 32, 2, 2]]
        ),
        "MobileNetV3": lambda: m.mobilenet_v3_small(width_mult=0.25, num_classes=3),
        "ShuffleNet": lambda: m.ShuffleNetV2([1, 2, 1], [8, 8, 16, 32, 32], num_classes=3),
        "SqueezeNet": lambda: m.SqueezeNet("1_1", 3),
        "ResNet": lambda: m.ResNet(
            m.resnet.BasicBlock, [1, 1, 1, 1], num_classes=3, width_per_group=64
        ),
        "Inception block": lambda: nn.Sequential(
            m.inception.InceptionA(3, 4), m.inception.InceptionB(sum((64, 64, 96, 4)) - 0)
        ),
        "Swin": lambda: m.SwinTransformer([2, 2], 8, [1, 1], [2, 2], [4, 4], num_classes=3),
    }
    return makes[name](), images(size=32)


def _operators_of_torchvision() -> None:
    """The wheel on PyPI is built for CUDA; without its library its operators must be named."""
    with contextlib.suppress(RuntimeError):
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        KEPT.append(library)


KEPT: list[Any] = []
for _name in ("DenseNet", "MobileNetV2", "MobileNetV3", "ShuffleNet", "SqueezeNet", "ResNet",
              "Inception block", "Swin"):  # fmt: skip
    ZOO[f"torchvision {_name}"] = lambda name=_name: torchvision_model(name)


class OnGraph(nn.Module):
    """A graph network on one fixed graph: its nodes are the rows of x."""

    def __init__(self, *layers: nn.Module):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.register_buffer("edges", torch.tensor([[0, 1, 2, 3, 0, 4], [1, 2, 3, 0, 2, 1]]))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x, self.edges))
        return x


def geometric(name: str) -> Made:
    import torch_geometric.nn as g  # type: ignore[import-not-found]

    def inner(a: int, b: int) -> nn.Module:
        return nn.Sequential(nn.Linear(a, 5), nn.ReLU(), nn.Linear(5, b))

    makes: dict[str, Callable[[], nn.Module]] = {
        "GCN": lambda: OnGraph(g.GCNConv(3, 4), g.GCNConv(4, 2)),
        "GAT": lambda: OnGraph(g.GATConv(3, 4, heads=2), g.GATConv(8, 2)),
        "GIN": lambda: OnGraph(g.GINConv(inner(3, 4)), g.GINConv(inner(4, 2))),
        "SAGE": lambda: OnGraph(g.SAGEConv(3, 4), g.SAGEConv(4, 2, aggr="max")),
        "Cheb": lambda: OnGraph(g.ChebConv(3, 4, K=3)),
    }
    return makes[name](), torch.randn(5, 3), {"whole": True}


for _name in ("GCN", "GAT", "GIN", "SAGE", "Cheb"):
    ZOO[f"PyG {_name}"] = lambda name=_name: geometric(name)


# --- long modules as strangers write them --------------------------------------------------------


@stranger
def packed_LSTM_tagger() -> Made:
    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(12, 5, padding_idx=0)
            self.lstm = nn.LSTM(5, 4, bidirectional=True, batch_first=True)
            self.out = nn.Linear(8, 3)

        def forward(self, ids, lengths):
            packed = nn.utils.rnn.pack_padded_sequence(
                self.embed(ids), lengths, batch_first=True, enforce_sorted=False
            )
            h, _ = self.lstm(packed)
            h, _ = nn.utils.rnn.pad_packed_sequence(h, batch_first=True, total_length=ids.shape[1])
            return self.out(h).mean(1)

    return Tagger(), (torch.randint(1, 12, (3, 5)), torch.tensor([5, 3, 2]))


@stranger
def GRU_sequence_to_sequence_with_attention() -> Made:
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.enc = nn.GRU(3, 6, batch_first=True)
            self.cell = nn.GRUCell(3, 6)
            self.v = nn.Linear(12, 1)
            self.out = nn.Linear(12, 3)

        def forward(self, x):
            states, h = self.enc(x)
            h = h[0]
            y = x.new_zeros(x.size(0), 3)
            ys = []
            for _ in range(3):
                h = self.cell(y, h)
                e = self.v(torch.cat([states, h.unsqueeze(1).expand_as(states)], dim=2)).squeeze(2)
                c = torch.bmm(F.softmax(e, 1).unsqueeze(1), states).squeeze(1)
                y = self.out(torch.cat([h, c], 1))
                ys.append(y)
            return torch.stack(ys, dim=1)

    return Model(), torch.randn(2, 4, 3)


@stranger
def handmade_LSTM_with_layer_norm() -> Made:
    class Cell(nn.Module):
        def __init__(self):
            super().__init__()
            self.ih, self.hh = nn.Linear(3, 16, bias=False), nn.Linear(4, 16, bias=False)
            self.b = nn.Parameter(torch.randn(16))
            self.ln_c = nn.LayerNorm(4)

        def forward(self, x):
            h = c = torch.zeros(x.shape[0], 4, dtype=x.dtype, device=x.device)
            for t in range(x.shape[1]):
                i, f, g, o = (self.ih(x[:, t]) + self.hh(h) + self.b).chunk(4, 1)
                c = torch.sigmoid(f + 1) * c + torch.sigmoid(i) * torch.tanh(g)
                h = torch.sigmoid(o) * torch.tanh(self.ln_c(c))
            return h

    return Cell(), torch.randn(2, 4, 3)


@stranger
def PINN_Burgers_autograd_grad() -> Made:
    class Burgers(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(
                nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1)
            )
            self.nu = nn.Parameter(torch.tensor(0.01))

        def forward(self, tx):
            t = tx[:, 0:1].clone().requires_grad_(True)
            x = tx[:, 1:2].clone().requires_grad_(True)
            u = self.net(torch.cat([t, x], 1))
            ones = torch.ones_like(u)
            u_t = torch.autograd.grad(u, t, ones, create_graph=True)[0]
            u_x = torch.autograd.grad(u, x, ones, create_graph=True)[0]
            u_xx = torch.autograd.grad(u_x, x, ones, create_graph=True, retain_graph=True)[0]
            return torch.hstack([u, u_t + u * u_x - self.nu * u_xx])

    return Burgers(), torch.rand(3, 2)


@stranger
def PINN_Laplacian_func_hessian() -> Made:
    class Poisson(nn.Module):
        def __init__(self):
            super().__init__()
            self.l1, self.l2 = nn.Linear(2, 7), nn.Linear(7, 1)

        def u(self, p):
            return self.l2(torch.sin(self.l1(p))).squeeze(-1)

        def forward(self, x):
            H = torch.vmap(torch.func.hessian(self.u))(x)
            return H.diagonal(dim1=-2, dim2=-1).sum(-1, keepdim=True) + 1.0

    return Poisson(), torch.randn(3, 2)


@stranger
def Hamiltonian_network() -> Made:
    class HNN(nn.Module):
        def __init__(self):
            super().__init__()
            self.H = nn.Sequential(nn.Linear(4, 8), nn.Softplus(), nn.Linear(8, 1))

        def forward(self, z):
            with torch.enable_grad():
                z = z.requires_grad_()
                dH = torch.autograd.grad(self.H(z).sum(), z, create_graph=True)[0]
            q, p = dH.split(2, -1)
            return torch.cat((p, -q), -1)

    return HNN(), torch.randn(3, 4)


@stranger
def Lagrangian_network_solve() -> Made:
    class LNN(nn.Module):
        def __init__(self):
            super().__init__()
            self.L = nn.Sequential(nn.Linear(4, 6), nn.Softplus(), nn.Linear(6, 1))

        def acceleration(self, s):
            q, v = s[:2], s[2:]
            lag = lambda q, v: self.L(torch.cat([q, v]))[0] + 2 * (v**2).sum()  # noqa: E731
            mass = torch.func.hessian(lag, argnums=1)(q, v)
            force = torch.func.grad(lag, argnums=0)(q, v)
            mixed = torch.func.jacrev(torch.func.grad(lag, argnums=1), argnums=0)(q, v)
            return torch.linalg.solve(mass, force - mixed @ v)

        def forward(self, s):
            return torch.vmap(self.acceleration)(s)

    return LNN(), 0.5 * torch.randn(2, 4)


@stranger
def RealNVP_log_likelihood() -> Made:
    class RealNVP(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mask", torch.tensor([[0.0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1]]))
            self.s = nn.ModuleList(
                nn.Sequential(nn.Linear(4, 6), nn.LeakyReLU(), nn.Linear(6, 4), nn.Tanh())
                for _ in range(3)
            )
            self.t = nn.ModuleList(
                nn.Sequential(nn.Linear(4, 6), nn.LeakyReLU(), nn.Linear(6, 4)) for _ in range(3)
            )

        def forward(self, x):
            log_det, z = x.new_zeros(x.shape[0]), x
            for i in reversed(range(len(self.t))):
                z_ = self.mask[i] * z
                s, t = self.s[i](z_) * (1 - self.mask[i]), self.t[i](z_) * (1 - self.mask[i])
                z = (1 - self.mask[i]) * (z - t) * torch.exp(-s) + z_
                log_det -= s.sum(dim=1)
            prior = torch.distributions.MultivariateNormal(
                torch.zeros(4, dtype=x.dtype), torch.eye(4, dtype=x.dtype)
            )
            return prior.log_prob(z) + log_det

    return RealNVP(), torch.randn(3, 4)


@stranger
def Glow_step_with_LU_convolution() -> Made:
    class Glow(nn.Module):
        def __init__(self):
            super().__init__()
            q, _ = torch.linalg.qr(torch.randn(4, 4))
            p, l, u = torch.linalg.lu(q)
            self.register_buffer("p", p)
            self.register_buffer("sign_s", torch.sign(torch.diag(u)))
            self.l, self.u = nn.Parameter(l), nn.Parameter(torch.triu(u, 1))
            self.log_s = nn.Parameter(torch.log(torch.abs(torch.diag(u))))
            self.loc, self.log_scale = (
                nn.Parameter(torch.zeros(1, 4, 1, 1)),
                nn.Parameter(torch.zeros(1, 4, 1, 1)),
            )

        def forward(self, x):
            l = self.l * torch.tril(torch.ones_like(self.l), -1) + torch.eye(4, dtype=x.dtype)
            w = self.p @ l @ (self.u + torch.diag(self.sign_s * torch.exp(self.log_s)))
            z = F.conv2d((x + self.loc) * self.log_scale.exp(), w[:, :, None, None])
            return z.flatten(1), (self.log_s.sum() + self.log_scale.sum()).mul(9).expand(len(x), 1)

    return Glow(), torch.randn(2, 4, 3, 3)


@stranger
def neural_spline_coupling() -> Made:
    class Spline(nn.Module):
        def __init__(self, bins=4):
            super().__init__()
            self.bins = bins
            self.net = nn.Sequential(nn.Linear(1, 8), nn.ReLU(), nn.Linear(8, 3 * bins + 1))

        def forward(self, x):
            a, b = x[:, :1], x[:, 1:].squeeze(-1)
            w, h, d = self.net(a).split([self.bins, self.bins, self.bins + 1], dim=-1)
            w, h, d = F.softmax(w, -1), F.softmax(h, -1), F.softplus(d) + 1e-3
            cw, ch = F.pad(w.cumsum(-1), (1, 0)), F.pad(h.cumsum(-1), (1, 0))
            inside = torch.sigmoid(b)
            k = (
                torch.searchsorted(cw.detach().contiguous(), inside[:, None].detach()).clamp(
                    1, self.bins
                )
                - 1
            )
            pick = lambda t: t.gather(-1, k).squeeze(-1)  # noqa: E731
            xk, yk, wk, hk, d0, d1 = (
                pick(cw),
                pick(ch),
                pick(w),
                pick(h),
                pick(d),
                d.gather(-1, k + 1).squeeze(-1),
            )
            xi, s = (inside - xk) / wk, hk / wk
            y = yk + hk * (s * xi**2 + d0 * xi * (1 - xi)) / (s + (d1 + d0 - 2 * s) * xi * (1 - xi))
            return torch.stack([a.squeeze(-1), y], -1)

    return Spline(), torch.randn(3, 2)


@stranger
def continuous_flow_with_trace() -> Made:
    class CNF(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))

        def rhs(self, t, z):
            def one(p):
                return self.f(torch.cat([p, t.reshape(1)]))

            return torch.vmap(one)(z), torch.vmap(torch.func.jacrev(one))(z).diagonal(
                dim1=1, dim2=2
            ).sum(1)

        def forward(self, z):
            log_p = -(z**2).sum(1) / 2
            for step in range(3):
                dz, trace = self.rhs(torch.tensor(step / 3, dtype=z.dtype), z)
                z, log_p = z + dz / 3, log_p - trace / 3
            return torch.cat([z, log_p[:, None]], 1)

    return CNF(), torch.randn(2, 2)


@stranger
def VAE_in_eval_mode() -> Made:
    class VAE(nn.Module):
        def __init__(self):
            super().__init__()
            self.enc = nn.Sequential(
                nn.Conv2d(1, 4, 3, 2, 1), nn.BatchNorm2d(4), nn.LeakyReLU(0.2), nn.Flatten()
            )
            self.fc_mu, self.fc_var = nn.Linear(64, 3), nn.Linear(64, 3)
            self.dec = nn.Sequential(
                nn.Linear(3, 64),
                nn.Unflatten(1, (4, 4, 4)),
                nn.ConvTranspose2d(4, 1, 4, 2, 1),
                nn.Sigmoid(),
            )

        def reparameterize(self, mu, logvar):
            if self.training:
                return mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
            return mu

        def forward(self, x):
            h = self.enc(x)
            mu, logvar = self.fc_mu(h), self.fc_var(h)
            return [self.dec(self.reparameterize(mu, logvar)), mu, logvar]

    return VAE(), torch.rand(2, 1, 8, 8)


@stranger
def VQ_VAE_straight_through() -> Made:
    class VQ(nn.Module):
        def __init__(self):
            super().__init__()
            self.enc, self.dec = nn.Linear(4, 3), nn.Linear(3, 4)
            self.codebook = nn.Embedding(5, 3)

        def forward(self, x):
            z = self.enc(x)
            d = (
                z.pow(2).sum(1, keepdim=True)
                - 2 * z @ self.codebook.weight.t()
                + self.codebook.weight.pow(2).sum(1)
            )
            q = self.codebook(d.argmin(1))
            q = z + (q - z).detach()
            return self.dec(q)

    return VQ(), torch.randn(3, 4)


@stranger
def U_Net_with_crops() -> Made:
    class Double(nn.Sequential):
        def __init__(self, i, o):
            super().__init__(
                nn.Conv2d(i, o, 3),
                nn.BatchNorm2d(o),
                nn.ReLU(inplace=True),
                nn.Conv2d(o, o, 3),
                nn.BatchNorm2d(o),
                nn.ReLU(inplace=True),
            )

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = Double(1, 4), Double(4, 8), Double(8, 4)
            self.up = nn.ConvTranspose2d(8, 4, 2, 2)
            self.out = nn.Conv2d(4, 2, 1)

        def forward(self, x):
            s = self.a(x)
            y = self.up(self.b(F.max_pool2d(s, 2)))
            d = (s.shape[-1] - y.shape[-1]) // 2
            s = s[:, :, d : d + y.shape[2], d : d + y.shape[3]]
            return self.out(self.c(torch.cat((s, y), 1)))

    return UNet(), torch.randn(2, 1, 20, 20)


@stranger
def dense_network_with_checkpoint() -> Made:
    import torch.utils.checkpoint as checkpoint

    class Dense(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(
                nn.Sequential(
                    nn.BatchNorm2d(2 + 2 * i), nn.ReLU(), nn.Conv2d(2 + 2 * i, 2, 3, padding=1)
                )
                for i in range(3)
            )
            self.head = nn.Linear(8, 2)

        def forward(self, x):
            for layer in self.layers:
                x = torch.cat([x, checkpoint.checkpoint(layer, x, use_reentrant=False)], 1)
            return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))

    return Dense(), torch.randn(2, 2, 5, 5)


@stranger
def inception_module() -> Made:
    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.b1 = nn.Conv2d(3, 2, 1)
            self.b2 = nn.Sequential(
                nn.Conv2d(3, 2, 1),
                nn.Conv2d(2, 2, (1, 3), padding=(0, 1)),
                nn.Conv2d(2, 2, (3, 1), padding=(1, 0)),
            )
            self.b3 = nn.Conv2d(3, 2, 5, padding="same")

        def forward(self, x):
            return torch.cat(
                [F.relu(b(x)) for b in (self.b1, self.b2, self.b3)]
                + [F.avg_pool2d(x, 3, 1, 1, count_include_pad=False)],
                1,
            ).mean([2, 3])

    return Branches(), torch.randn(2, 3, 6, 6)


@stranger
def EfficientNet_like() -> Made:
    class MBConv(nn.Module):
        def __init__(self, i, o, e, s):
            super().__init__()
            h = i * e
            self.body = nn.Sequential(
                nn.Conv2d(i, h, 1, bias=False),
                nn.BatchNorm2d(h),
                nn.SiLU(True),
                nn.Conv2d(h, h, 3, s, 1, groups=h, bias=False),
                nn.BatchNorm2d(h),
                nn.SiLU(True),
            )
            self.se = nn.Sequential(
                nn.AdaptiveAvgPool2d(1),
                nn.Conv2d(h, 2, 1),
                nn.SiLU(),
                nn.Conv2d(2, h, 1),
                nn.Sigmoid(),
            )
            self.tail = nn.Sequential(nn.Conv2d(h, o, 1, bias=False), nn.BatchNorm2d(o))
            self.skip = s == 1 and i == o

        def forward(self, x):
            y = self.body(x)
            y = self.tail(y * self.se(y))
            return x + y if self.skip else y

    return nn.Sequential(
        nn.Conv2d(3, 4, 3, 2, 1, bias=False), nn.BatchNorm2d(4), nn.SiLU(),
        *(MBConv(a, b, 2, s) for a, b, s in [(4, 4, 1), (4, 6, 2), (6, 6, 1), (6, 6, 1), (6, 8, 2), (8, 8, 1)]),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(8, 3),
    ), images(size=16)  # fmt: skip


@stranger
def weight_standardised_NF_block() -> Made:
    class WSConv2d(nn.Conv2d):
        def __init__(self, *a, **k):
            super().__init__(*a, **k)
            self.gain = nn.Parameter(torch.ones(self.out_channels, 1, 1, 1))

        def forward(self, x):
            w = F.batch_norm(
                self.weight.reshape(1, self.out_channels, -1),
                None,
                None,
                weight=self.gain.view(-1),
                training=True,
                momentum=0.0,
            ).reshape_as(self.weight)
            return F.conv2d(x, w, self.bias, self.stride, self.padding)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = WSConv2d(3, 3, 3, padding=1), WSConv2d(3, 3, 3, padding=1)
            self.skip_gain = nn.Parameter(torch.tensor(0.3))

        def forward(self, x):
            y = self.b(F.gelu(self.a(F.gelu(x) * 1.7)) * 1.7)
            return (x + 0.2 * self.skip_gain * y).amax((2, 3))

    return Block(), torch.randn(2, 3, 5, 5)


@stranger
def deep_sets() -> Made:
    class DeepSets(nn.Module):
        def __init__(self):
            super().__init__()
            self.phi, self.rho = (
                nn.Sequential(nn.Linear(3, 6), nn.ELU(), nn.Linear(6, 6)),
                nn.Linear(6, 2),
            )

        def forward(self, x, mask):
            h = self.phi(x) * mask.unsqueeze(-1)
            return self.rho(h.sum(1) / mask.sum(1, keepdim=True).clamp(min=1))

    return DeepSets(), (torch.randn(3, 4, 3), (torch.rand(3, 4) > 0.3).double())


@stranger
def PointNet_with_T_net() -> Made:
    class PointNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv1d(3, 6, 1)
            self.bn = nn.BatchNorm1d(6)
            self.fc, self.head = nn.Linear(6, 9), nn.Linear(6, 2)

        def forward(self, x):
            t = torch.max(F.relu(self.bn(self.conv(x))), 2, keepdim=True)[0].view(-1, 6)
            t = self.fc(t).view(-1, 3, 3) + torch.eye(3, dtype=x.dtype).view(1, 9).repeat(
                x.size(0), 1
            ).view(-1, 3, 3)
            y = torch.bmm(x.transpose(2, 1), t).transpose(2, 1)
            return F.log_softmax(self.head(self.conv(y).max(dim=-1).values), dim=1)

    return PointNet(), torch.randn(2, 3, 7)


@stranger
def hypernetwork_functional_call() -> Made:
    class Hyper(nn.Module):
        def __init__(self):
            super().__init__()
            self.z = nn.Parameter(torch.randn(3))
            self.gen = nn.Linear(3, 4 * 5 + 5)
            self.target = nn.Linear(4, 5)
            for p in self.target.parameters():
                p.requires_grad_(False)

        def forward(self, x):
            flat = self.gen(self.z)
            made = {"weight": flat[:20].view(5, 4), "bias": flat[20:]}
            return torch.func.functional_call(self.target, made, (x,)).relu()

    return Hyper(), torch.randn(3, 4)


@stranger
def SIREN_occupancy() -> Made:
    class Sine(nn.Module):
        def __init__(self, i, o, w0=30.0):
            super().__init__()
            self.w0, self.linear = w0, nn.Linear(i, o)
            with torch.no_grad():
                self.linear.weight.uniform_(-((6 / i) ** 0.5) / w0, (6 / i) ** 0.5 / w0)

        def forward(self, x):
            return torch.sin(self.w0 * self.linear(x))

    return nn.Sequential(Sine(2, 8), Sine(8, 8), nn.Linear(8, 1), nn.Sigmoid()), torch.rand(4, 2)


@stranger
def NeRF_with_volume_rendering() -> Made:
    class NeRF(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(15, 8), nn.ReLU(), nn.Linear(8, 4))

        def encode(self, x):
            out = [x]
            for k in range(2):
                out += [torch.sin(2.0**k * x), torch.cos(2.0**k * x)]
            return torch.cat(out, -1)

        def forward(self, rays):
            o, d = rays[:, :3], F.normalize(rays[:, 3:], dim=-1)
            t = torch.linspace(0.0, 1.0, 5, dtype=rays.dtype)
            raw = self.net(self.encode(o[:, None] + d[:, None] * t[:, None]))
            alpha = 1 - torch.exp(-F.relu(raw[..., 3]) * (t[1] - t[0]))
            trans = torch.cumprod(
                torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], -1), -1
            )[:, :-1]
            return ((alpha * trans)[..., None] * torch.sigmoid(raw[..., :3])).sum(1)

    return NeRF(), torch.randn(3, 6)


@stranger
def KAN_with_B_splines() -> Made:
    class KANLinear(nn.Module):
        def __init__(self, i, o, grid=4, k=3):
            super().__init__()
            self.k = k
            h = 2 / grid
            self.register_buffer(
                "grid", (torch.arange(-k, grid + k + 1) * h - 1).expand(i, -1).contiguous()
            )
            self.base, self.spline = (
                nn.Parameter(torch.randn(o, i)),
                nn.Parameter(torch.randn(o, i, grid + k)),
            )

        def b_splines(self, x):
            g, x = self.grid, x.unsqueeze(-1)
            bases = ((x >= g[:, :-1]) & (x < g[:, 1:])).to(x.dtype)
            for k in range(1, self.k + 1):
                bases = (x - g[:, : -(k + 1)]) / (g[:, k:-1] - g[:, : -(k + 1)]) * bases[
                    :, :, :-1
                ] + (g[:, k + 1 :] - x) / (g[:, k + 1 :] - g[:, 1:(-k)]) * bases[:, :, 1:]
            return bases.contiguous()

        def forward(self, x):
            return F.linear(F.silu(x), self.base) + F.linear(
                self.b_splines(x).view(x.size(0), -1), self.spline.view(self.spline.shape[0], -1)
            )

    return nn.Sequential(KANLinear(2, 3), KANLinear(3, 1)), torch.rand(3, 2) * 2 - 1


@stranger
def neural_ODE_Runge_Kutta_4() -> Made:
    class ODE(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
            self.register_buffer("t", torch.linspace(0, 1, 5))

        def rhs(self, t, y):
            return self.f(torch.cat([y, t.expand(y.shape[0], 1)], 1))

        def forward(self, y):
            path = [y]
            for t0, t1 in zip(self.t[:-1], self.t[1:], strict=True):
                h = t1 - t0
                k1 = self.rhs(t0, y)
                k2 = self.rhs(t0 + h / 2, y + h * k1 / 2)
                k3 = self.rhs(t0 + h / 2, y + h * k2 / 2)
                k4 = self.rhs(t1, y + h * k3)
                y = y + h * (k1 + 2 * k2 + 2 * k3 + k4) / 6
                path.append(y)
            return torch.stack(path, 1)

    return ODE(), torch.randn(2, 2)


@stranger
def spiking_network_surrogate() -> Made:
    class Spike(torch.autograd.Function):
        @staticmethod
        def forward(x):
            return (x > 0).to(x.dtype)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(inputs[0])

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g / (1 + 10 * x.abs()) ** 2

    class SNN(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.fc2 = nn.Linear(3, 6), nn.Linear(6, 2)

        def forward(self, x):
            v, out = torch.zeros(x.shape[0], 6, dtype=x.dtype), 0
            for _ in range(4):
                v = 0.9 * v + self.fc1(x)
                s = Spike.apply(v - 1.0)
                v = v * (1 - s)
                out = out + self.fc2(s)
            return out / 4

    return SNN(), torch.randn(3, 3)


@stranger
def spiking_network_sigmoid_trick() -> Made:
    class SNN(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.fc2 = nn.Linear(3, 6), nn.Linear(6, 2)

        def forward(self, x):
            v, out = torch.zeros(x.shape[0], 6, dtype=x.dtype), 0
            for _ in range(4):
                v = 0.9 * v + self.fc1(x)
                soft = torch.sigmoid(5 * (v - 1))
                s = (v > 1).to(x.dtype).detach() + soft - soft.detach()
                v = torch.where(v > 1, torch.zeros_like(v), v)
                out = out + self.fc2(s)
            return out / 4

    return SNN(), torch.randn(3, 3)


@stranger
def linear_attention() -> Made:
    class Linear(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.o = nn.Linear(6, 18, bias=False), nn.Linear(6, 6)

        def forward(self, x):
            q, k, v = map(lambda t: t.unflatten(-1, (2, 3)), self.qkv(x).chunk(3, -1))
            q, k = F.elu(q) + 1, F.elu(k) + 1
            kv = torch.cumsum(torch.einsum("nlhd,nlhm->nlhdm", k, v), 1)
            z = 1 / torch.einsum("nlhd,nlhd->nlh", q, k.cumsum(1)).clamp_min(1e-6)
            return self.o(torch.einsum("nlhd,nlhdm,nlh->nlhm", q, kv, z).flatten(-2))

    return Linear(), torch.randn(2, 4, 6)


@stranger
def ALiBi_grouped_query_attention() -> Made:
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.kv, self.o = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
            self.register_buffer("slopes", torch.tensor([2.0**-4, 2.0**-8]))

        def forward(self, x):
            n, t, _ = x.shape
            q = self.q(x).view(n, t, 2, 4).transpose(1, 2)
            k, v = self.kv(x).view(n, t, 2, 1, 4).permute(2, 0, 3, 1, 4)
            k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
            bias = (torch.arange(t)[None] - torch.arange(t)[:, None]).to(
                x.dtype
            ) * self.slopes.view(-1, 1, 1)
            bias = bias.masked_fill(torch.ones(t, t, dtype=torch.bool).triu(1), float("-inf"))
            return self.o(
                F.scaled_dot_product_attention(q, k, v, attn_mask=bias.expand(n, 2, t, t))
                .transpose(1, 2)
                .reshape(n, t, 8)
            )

    return Attention(), torch.randn(2, 5, 8)


@stranger
def decoder_layer_with_generated_mask() -> Made:
    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(11, 8)
            layer = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)
            self.decoder = nn.TransformerDecoder(layer, 2)
            self.out = nn.Linear(8, 5)

        def forward(self, ids):
            x = self.embed(ids) * math.sqrt(8)
            mask = nn.Transformer.generate_square_subsequent_mask(ids.size(1))
            return self.out(self.decoder(x, x.flip(1), tgt_mask=mask.to(x.dtype)))

    return Decoder(), torch.randint(0, 11, (2, 5))


@stranger
def encoder_with_padding_mask() -> Made:
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(11, 8, padding_idx=0)
            self.enc = nn.TransformerEncoder(
                nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2
            )
            self.out = nn.Linear(8, 3)

        def forward(self, ids):
            pad = ids == 0
            h = self.enc(self.embed(ids), src_key_padding_mask=pad)
            h = h.masked_fill(pad[..., None], 0.0)
            return self.out(h.sum(1) / (~pad).sum(1, keepdim=True))

    return Encoder(), torch.tensor([[3, 4, 5, 0, 0], [1, 2, 3, 4, 0]])


@stranger
def full_transformer() -> Made:
    class Seq2Seq(nn.Module):
        def __init__(self):
            super().__init__()
            self.t = nn.Transformer(8, 2, 1, 1, 16, batch_first=True, norm_first=True)

        def forward(self, a, b):
            return self.t(
                a, b, tgt_mask=self.t.generate_square_subsequent_mask(b.size(1), dtype=b.dtype)
            )

    return Seq2Seq(), (torch.randn(2, 4, 8), torch.randn(2, 3, 8))


@stranger
def axial_and_window_attention() -> Made:
    class Window(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.proj = nn.Linear(4, 12), nn.Linear(4, 4)
            self.table = nn.Parameter(torch.randn(9, 1))
            c = torch.stack(
                torch.meshgrid(torch.arange(2), torch.arange(2), indexing="ij")
            ).flatten(1)
            r = (c[:, :, None] - c[:, None]).permute(1, 2, 0) + 1
            self.register_buffer("index", r[..., 0] * 3 + r[..., 1])

        def forward(self, x):
            n, h, w, c = x.shape
            x = torch.roll(x, (-1, -1), (1, 2))
            x = x.view(n, h // 2, 2, w // 2, 2, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 4, c)
            q, k, v = self.qkv(x).reshape(-1, 4, 3, c).unbind(2)
            a = q @ k.transpose(-2, -1) / c**0.5 + self.table[self.index.view(-1)].view(4, 4)
            x = self.proj(a.softmax(-1) @ v)
            x = x.view(n, h // 2, w // 2, 2, 2, c).permute(0, 1, 3, 2, 4, 5).reshape(n, h, w, c)
            return torch.roll(x, (1, 1), (1, 2)).mean((1, 2))

    return Window(), torch.randn(2, 4, 4, 4)


@stranger
def spatial_transformer_network() -> Made:
    class STN(nn.Module):
        def __init__(self):
            super().__init__()
            self.loc = nn.Sequential(
                nn.Conv2d(1, 4, 3),
                nn.MaxPool2d(2, 2),
                nn.ReLU(True),
                nn.Flatten(),
                nn.Linear(36, 6),
            )
            self.loc[-1].bias.data.copy_(torch.tensor([1, 0, 0.1, 0, 1, -0.1]))
            self.cls = nn.Linear(64, 2)

        def forward(self, x):
            grid = F.affine_grid(self.loc(x).view(-1, 2, 3), x.size(), align_corners=True)
            x = F.grid_sample(x, grid, mode="bilinear", padding_mode="border", align_corners=True)
            return self.cls(x.flatten(1))

    return STN(), torch.randn(2, 1, 8, 8)


@stranger
def prototypical_network_cdist() -> Made:
    class Proto(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 3))
            self.prototypes = nn.Parameter(torch.randn(4, 3))

        def forward(self, x):
            return -torch.cdist(self.f(x), self.prototypes, p=2.0)

    return Proto(), torch.randn(3, 4)


@stranger
def complex_modulus_hypot() -> Made:
    class Gabor(nn.Module):
        def __init__(self):
            super().__init__()
            self.re, self.im = nn.Conv1d(1, 4, 5), nn.Conv1d(1, 4, 5)
            self.out = nn.Linear(4, 2)

        def forward(self, x):
            return self.out(
                torch.log1p(torch.hypot(self.re(x), self.im(x))).mean(-1)
            ) + torch.atan2(x[:, 0, :1], x[:, 0, 1:2])

    return Gabor(), torch.randn(2, 1, 9)


@stranger
def Fourier_neural_operator() -> Made:
    class FNO(nn.Module):
        def __init__(self):
            super().__init__()
            self.weights = nn.Parameter(torch.randn(2, 2, 3, 2) / 4)
            self.lift, self.w, self.out = nn.Linear(1, 2), nn.Conv1d(2, 2, 1), nn.Linear(2, 1)

        def forward(self, u):
            v = self.lift(u[..., None]).permute(0, 2, 1)
            ft = torch.fft.rfft(v)
            modes = torch.einsum("bim,iom->bom", ft[..., :3], torch.view_as_complex(self.weights))
            out = torch.zeros_like(ft)
            out[..., :3] = modes
            v = F.gelu(torch.fft.irfft(out, n=v.size(-1)) + self.w(v))
            return self.out(v.permute(0, 2, 1)).squeeze(-1)

    return FNO(), torch.randn(2, 8)


@stranger
def SPD_network_eigh() -> Made:
    class SPD(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.randn(3, 4))
            self.head = nn.Linear(9, 2)

        def forward(self, x):
            s = self.w @ (x @ x.mT / x.shape[-1] + 0.1 * torch.eye(4, dtype=x.dtype)) @ self.w.T
            values, vectors = torch.linalg.eigh(s)
            return self.head(
                ((vectors * values.clamp_min(1e-4).log().unsqueeze(-2)) @ vectors.mT).flatten(1)
            )

    return SPD(), torch.randn(2, 4, 6)


@stranger
def GP_head_with_Cholesky() -> Made:
    class DeepKernel(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 2))
            self.log_l, self.log_n = nn.Parameter(torch.zeros(())), nn.Parameter(torch.tensor(-2.0))
            self.register_buffer("xt", torch.randn(5, 2))
            self.register_buffer("yt", torch.randn(5, 1))

        def k(self, a, b):
            return torch.exp(-0.5 * ((a[:, None] - b[None]) ** 2).sum(-1) / self.log_l.exp() ** 2)

        def forward(self, x):
            z, zt = self.f(x), self.f(self.xt)
            chol = torch.linalg.cholesky(
                self.k(zt, zt) + self.log_n.exp() * torch.eye(5, dtype=x.dtype)
            )
            alpha = torch.cholesky_solve(self.yt, chol)
            v = torch.linalg.solve_triangular(chol, self.k(zt, z), upper=False)
            return torch.cat([self.k(z, zt) @ alpha, (1 - (v**2).sum(0))[:, None]], 1)

    return DeepKernel(), torch.randn(3, 2)


@stranger
def spectral_and_orthogonal_parametrisations() -> Made:
    P = nn.utils.parametrizations
    return nn.Sequential(
        P.spectral_norm(nn.Linear(4, 5)), nn.ReLU(), P.orthogonal(nn.Linear(5, 5)), nn.ReLU(),
        P.weight_norm(nn.Conv1d(1, 2, 3)) if False else P.weight_norm(nn.Linear(5, 2)),
    ), torch.randn(3, 4)  # fmt: skip


@stranger
def top_two_mixture_of_experts_with_capacity_loop() -> Made:
    class MoE(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate = nn.Linear(4, 4, bias=False)
            self.experts = nn.ModuleList(
                nn.Sequential(nn.Linear(4, 6), nn.SiLU(), nn.Linear(6, 4)) for _ in range(4)
            )

        def forward(self, x):
            scores, selected = torch.topk(F.softmax(self.gate(x), dim=1), 2, dim=-1)
            scores /= scores.sum(dim=-1, keepdim=True)
            out = torch.zeros_like(x)
            mask = F.one_hot(selected, num_classes=4).permute(2, 1, 0)
            for e in range(4):
                idx, top = torch.where(mask[e])
                out.index_add_(0, top, self.experts[e](x[top]) * scores[top, idx, None])
            return out

    return MoE(), torch.randn(3, 4)


@stranger
def soft_mixture_of_experts() -> Made:
    class Soft(nn.Module):
        def __init__(self):
            super().__init__()
            self.phi = nn.Parameter(torch.randn(4, 3, 2))
            self.w1, self.w2 = (
                nn.Parameter(torch.randn(3, 4, 5)),
                nn.Parameter(torch.randn(3, 5, 4)),
            )

        def forward(self, x):
            logits = torch.einsum("bnd,dep->bnep", x, self.phi)
            dispatch, combine = logits.softmax(1), logits.flatten(2).softmax(-1).view_as(logits)
            s = torch.einsum("bnd,bnep->bepd", x, dispatch)
            y = torch.einsum(
                "bepf,efd->bepd", F.gelu(torch.einsum("bepd,edf->bepf", s, self.w1)), self.w2
            )
            return torch.einsum("bepd,bnep->bnd", y, combine)

    return Soft(), torch.randn(2, 5, 4)


@stranger
def Mamba_like_selective_scan() -> Made:
    class SSM(nn.Module):
        def __init__(self, d=4, n=3):
            super().__init__()
            self.in_proj, self.conv = (
                nn.Linear(d, 2 * d, bias=False),
                nn.Conv1d(d, d, 3, groups=d, padding=2),
            )
            self.x_proj, self.dt = nn.Linear(d, 1 + 2 * n, bias=False), nn.Linear(1, d)
            self.A_log = nn.Parameter(
                torch.log(torch.arange(1, n + 1, dtype=torch.float32).repeat(d, 1))
            )
            self.D, self.out = nn.Parameter(torch.ones(d)), nn.Linear(d, d, bias=False)
            self.n = n

        def forward(self, u):
            length = u.shape[1]
            x, res = self.in_proj(u).chunk(2, -1)
            x = F.silu(self.conv(x.transpose(1, 2))[..., :length].transpose(1, 2))
            A = -torch.exp(self.A_log)
            delta, B, C = self.x_proj(x).split([1, self.n, self.n], -1)
            delta = F.softplus(self.dt(delta))
            dA, dBx = (
                torch.exp(torch.einsum("bld,dn->bldn", delta, A)),
                torch.einsum("bld,bln,bld->bldn", delta, B, x),
            )
            h, ys = torch.zeros_like(dA[:, 0]), []
            for i in range(length):
                h = dA[:, i] * h + dBx[:, i]
                ys.append(torch.einsum("bdn,bn->bd", h, C[:, i]))
            return self.out((torch.stack(ys, 1) + x * self.D) * F.silu(res))

    return SSM(), torch.randn(2, 5, 4)


@stranger
def WaveNet_with_gates() -> Made:
    class WaveNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.start = nn.Conv1d(1, 4, 1)
            self.f = nn.ModuleList(nn.Conv1d(4, 4, 2, dilation=2**i) for i in range(3))
            self.g = nn.ModuleList(nn.Conv1d(4, 4, 2, dilation=2**i) for i in range(3))
            self.skip = nn.ModuleList(nn.Conv1d(4, 3, 1) for _ in range(3))
            self.end = nn.Conv1d(3, 2, 1)

        def forward(self, x):
            x, total = self.start(x), 0
            for f, g, s in zip(self.f, self.g, self.skip, strict=True):
                h = torch.tanh(f(x)) * torch.sigmoid(g(x))
                total = total[..., -h.size(-1) :] + s(h) if torch.is_tensor(total) else s(h)
                x = x[..., -h.size(-1) :] + h
            return self.end(F.relu(total))[..., -1]

    return WaveNet(), torch.randn(2, 1, 10)


@stranger
def diffusion_U_Net_with_time_embedding() -> Made:
    class Denoiser(nn.Module):
        def __init__(self):
            super().__init__()
            self.time = nn.Sequential(nn.Linear(8, 8), nn.SiLU(), nn.Linear(8, 8))
            self.c1, self.c2, self.c3 = (
                nn.Conv2d(1, 8, 3, padding=1),
                nn.Conv2d(8, 8, 3, 2, 1),
                nn.Conv2d(16, 8, 3, padding=1),
            )
            self.n1, self.n2 = nn.GroupNorm(4, 8), nn.GroupNorm(4, 8)
            self.attn = nn.MultiheadAttention(8, 2, batch_first=True)
            self.out = nn.Conv2d(8, 1, 1)

        def forward(self, x, t):
            freq = torch.exp(-math.log(10000) * torch.arange(4, dtype=x.dtype) / 4)
            angle = t[:, None].to(x.dtype) * freq[None]
            emb = self.time(torch.cat([angle.sin(), angle.cos()], -1))
            a = F.silu(self.n1(self.c1(x))) + emb[..., None, None]
            b = F.silu(self.n2(self.c2(a)))
            s = b.flatten(2).transpose(1, 2)
            b = b + self.attn(s, s, s, need_weights=False)[0].transpose(1, 2).reshape(b.shape)
            b = F.interpolate(b, size=a.shape[-2:], mode="bilinear", align_corners=False)
            return self.out(F.silu(self.c3(torch.cat([a, b], 1))))

    return Denoiser(), (torch.randn(2, 1, 6, 6), torch.tensor([3, 700]))


@stranger
def DeepONet() -> Made:
    class DeepONet(nn.Module):
        def __init__(self):
            super().__init__()
            self.branch = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 6))
            self.trunk = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 6))
            self.b = nn.Parameter(torch.zeros(1))

        def forward(self, u, y):
            return torch.einsum("bp,bqp->bq", self.branch(u), self.trunk(y)) + self.b

    return DeepONet(), (torch.randn(2, 5), torch.rand(2, 4, 1))


@stranger
def TabNet_like_with_sparsemax() -> Made:
    class Tab(nn.Module):
        def __init__(self):
            super().__init__()
            self.bn = nn.BatchNorm1d(5)
            self.att, self.fc, self.out = nn.Linear(4, 5), nn.Linear(5, 8), nn.Linear(4, 2)

        def sparsemax(self, z):
            s, _ = torch.sort(z, dim=-1, descending=True)
            k = torch.arange(1, z.size(-1) + 1, dtype=z.dtype)
            support = (1 + k * s) > s.cumsum(-1)
            kz = support.sum(-1, keepdim=True)
            tau = (s.cumsum(-1).gather(-1, kz - 1) - 1) / kz.to(z.dtype)
            return torch.clamp(z - tau, min=0)

        def forward(self, x):
            x = self.bn(x)
            a, total = x.new_zeros(x.size(0), 4), 0
            for _ in range(2):
                d, a = F.glu(self.fc(self.sparsemax(self.att(a) + x) * x).repeat(1, 2), -1).split(
                    4, -1
                )
                total = total + F.relu(d)
            return self.out(total)

    return Tab(), torch.randn(3, 5)


@stranger
def factorisation_machine_with_embeddings() -> Made:
    class DeepFM(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.ModuleList([nn.Embedding(n, 3) for n in (4, 5, 6)])
            self.lin = nn.ModuleList([nn.Embedding(n, 1) for n in (4, 5, 6)])
            self.deep = nn.Sequential(nn.Linear(9, 6), nn.ReLU(), nn.Dropout(0.5), nn.Linear(6, 1))

        def forward(self, x):
            e = torch.stack([emb(x[:, i]) for i, emb in enumerate(self.emb)], 1)
            first = sum(lin(x[:, i]) for i, lin in enumerate(self.lin))
            second = 0.5 * (e.sum(1).square() - e.square().sum(1)).sum(1, keepdim=True)
            return torch.sigmoid(first + second + self.deep(e.flatten(1)))

    return DeepFM(), torch.randint(0, 4, (3, 3))


@stranger
def NBEATS() -> Made:
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.theta = (
                nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU()),
                nn.Linear(8, 5),
            )

        def forward(self, x):
            b, f = self.theta(self.fc(x)).split([3, 2], -1)
            t = torch.linspace(0, 1, 6, dtype=x.dtype)
            return b @ torch.stack([t**i for i in range(3)]), f

    class NBeats(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList(Block() for _ in range(3))

        def forward(self, x):
            y = 0.0
            for block in self.blocks:
                back, fore = block(x)
                x, y = x - back, y + fore
            return y

    return NBeats(), torch.randn(3, 6)


@stranger
def equivariant_message_passing() -> Made:
    class EGNN(nn.Module):
        def __init__(self):
            super().__init__()
            self.e, self.h, self.x = (
                nn.Sequential(nn.Linear(9, 6), nn.SiLU()),
                nn.Linear(10, 4),
                nn.Linear(6, 1, bias=False),
            )

        def forward(self, h, x):
            n = h.size(1)
            diff = x[:, :, None] - x[:, None]
            d2 = diff.pow(2).sum(-1, keepdim=True)
            m = self.e(
                torch.cat(
                    [h[:, :, None].expand(-1, -1, n, -1), h[:, None].expand(-1, n, -1, -1), d2], -1
                )
            )
            m = m * (1 - torch.eye(n, dtype=m.dtype))[None, :, :, None]
            x = x + (diff * self.x(m)).mean(2)
            return h + self.h(torch.cat([h, m.sum(2)], -1)), x

    return EGNN(), (torch.randn(2, 4, 4), torch.randn(2, 4, 3))


@stranger
def capsules_with_routing() -> Made:
    class Caps(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.randn(1, 4, 2, 3, 2))

        @staticmethod
        def squash(s):
            n = s.norm(dim=-1, keepdim=True)
            return n**2 / (1 + n**2) * s / (n + 1e-8)

        def forward(self, x):
            u = (self.w @ x.view(x.size(0), 4, 1, 2, 1)).squeeze(-1)
            b = torch.zeros(x.size(0), 4, 2, 1, dtype=x.dtype)
            for i in range(3):
                v = self.squash((b.softmax(2) * u).sum(1, keepdim=True))
                if i < 2:
                    b = b + (u * v).sum(-1, keepdim=True)
            return v.squeeze(1).norm(dim=-1)

    return Caps(), torch.randn(2, 8)


@stranger
def echo_state_network() -> Made:
    class Reservoir(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("w", torch.randn(6, 6) / 4)
            self.register_buffer("w_in", torch.randn(6, 2))
            self.read = nn.Linear(6, 1)

        @torch.no_grad()
        def states(self, x):
            h = torch.zeros(x.size(0), 6, dtype=x.dtype)
            for t in range(x.size(1)):
                h = 0.7 * h + 0.3 * torch.tanh(x[:, t] @ self.w_in.T + h @ self.w.T)
            return h

        def forward(self, x):
            return self.read(self.states(x))

    return Reservoir(), torch.randn(2, 4, 2)


@stranger
def differentiable_sort_and_quantiles() -> Made:
    class Order(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = nn.Linear(4, 6)

        def forward(self, x):
            z = self.f(x)
            return torch.cat(
                [
                    z.sort(-1).values[:, ::2],
                    z.median(-1, keepdim=True).values,
                    torch.quantile(z, 0.3, dim=-1, keepdim=True),
                    z.topk(2).values,
                    z.logsumexp(-1, keepdim=True),
                    z.kthvalue(2).values[:, None],
                ],
                -1,
            )

    return Order(), torch.randn(3, 4)


@stranger
def in_place_tensor_surgery() -> Made:
    class Surgery(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 6), nn.Linear(6, 3)

        def forward(self, x):
            h = self.a(x)
            h[:, ::2] *= 2
            h[h < 0] = 0
            h[:, 1].add_(x[:, 0])
            pad = torch.empty_like(h).fill_(0.5)
            pad[:, 1:4] = h[:, 2:5]
            y = self.b(torch.where(pad > 0.2, pad, h.flip(1)))
            y.clamp_(-1, 1).mul_(3)
            return y.scatter_add(1, torch.tensor([[0, 1, 1]]).expand(len(y), -1), y)

    return Surgery(), torch.randn(3, 4)


@stranger
def module_with_stochastic_depth_and_losses() -> Made:
    class Out(dict):
        pass

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
            self.p = 0.5

        def forward(self, x):
            reg = 0.0
            for b in self.blocks:
                if self.training and torch.rand(()) < self.p:
                    continue
                y = F.dropout(torch.relu(b(x)), 0.1, self.training)
                reg = reg + b.weight.abs().mean()
                x = x + y
            return {"logits": x, "regulariser": reg.expand(x.size(0))}

    return Model(), torch.randn(3, 4)


@stranger
def equilibrium_with_Anderson() -> Made:
    class DEQ(nn.Module):
        def __init__(self):
            super().__init__()
            self.w, self.u = nn.Linear(4, 4), nn.Linear(3, 4)

        def forward(self, x):
            z = torch.zeros(x.size(0), 4, dtype=x.dtype)
            with torch.no_grad():
                for _ in range(15):
                    z = torch.tanh(0.2 * self.w(z) + self.u(x))
            return torch.tanh(0.2 * self.w(z) + self.u(x))

    return DEQ(), torch.randn(3, 3)


@stranger
def energy_based_score() -> Made:
    class Score(nn.Module):
        def __init__(self):
            super().__init__()
            self.e = nn.Sequential(nn.Linear(3, 8), nn.SiLU(), nn.Linear(8, 1))

        def forward(self, x):
            return -torch.func.vmap(torch.func.grad(lambda v: self.e(v).squeeze()))(x)

    return Score(), torch.randn(3, 3)


@stranger
def mask_R_like_roi_pool_by_unfold() -> Made:
    class Patches(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = nn.Linear(8, 3)

        def forward(self, x):
            p = x.unfold(2, 2, 2).unfold(3, 2, 2).permute(0, 2, 3, 1, 4, 5).flatten(3)
            s = F.pixel_unshuffle(x, 2).movedim(1, -1)
            return self.f(p + s).amax((1, 2))

    return Patches(), torch.randn(2, 2, 4, 4)


# --- the measurement -----------------------------------------------------------------------------


def seconds() -> float:
    """Processor seconds of this process and its children."""
    own, theirs = (
        resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return own.ru_utime + own.ru_stime + theirs.ru_utime + theirs.ru_stime


class Widened(torch.overrides.TorchFunctionMode):
    """PyTorch with float64 where code names float32 (the angles of rotary positions, say)."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args = [torch.float64 if a is torch.float32 else a for a in args]
        named = {k: torch.float64 if v is torch.float32 else v for k, v in (kwargs or {}).items()}
        return (torch.Tensor.double if func is torch.Tensor.float else func)(*args, **named)


def parts(output: Any) -> list[Tensor]:
    """The tensors of what a module returns."""
    if isinstance(output, Tensor):
        return [output]
    items = output.values() if isinstance(output, dict) else output
    return [part for item in items for part in parts(item)]


def reference(module: nn.Module, x: Any, whole: bool) -> tuple[np.ndarray, np.ndarray]:
    """The outputs, a row for each sample, and JJᵀ by `torch.func` (by reverse mode, row by row,
    where a module differentiates itself and `torch.func` does not allow it).
    """
    names = [name for name, p in module.named_parameters() if p.requires_grad]
    weights = dict(module.named_parameters())
    inputs = x if isinstance(x, tuple) else (x,)

    def flat(chosen: dict[str, Tensor]) -> Tensor:
        out = parts(torch.func.functional_call(module, {**weights, **chosen}, inputs))
        lead = 1 if whole else len(inputs[0])
        return torch.cat([part.reshape(lead, -1) for part in out], 1)

    chosen = {name: weights[name].detach() for name in names}
    y = flat(chosen).detach()
    try:
        slopes = torch.func.jacrev(lambda c: flat(c).ravel())(chosen)
        J = torch.cat([slopes[name].reshape(y.numel(), -1) for name in names], 1)
    except RuntimeError:
        rows, live = [], flat({}).ravel()
        kept = [weights[name] for name in names]
        for value in live:
            grads = torch.autograd.grad(value, kept, retain_graph=True, materialize_grads=True)
            rows.append(torch.cat([g.ravel() for g in grads]))
        J = torch.stack(rows)
    return y.numpy(), (J @ J.T).detach().numpy()


def array(x: Any) -> Any:
    return tuple(a.numpy() for a in x) if isinstance(x, tuple) else x.numpy()


def tried(name: str, inspect: bool) -> dict[str, Any]:
    """What became of one module."""
    torch.manual_seed(0)
    made = ZOO[name]()
    module, x, options = made if len(made) == 3 else (*made, {})
    narrow = copy.deepcopy(module).eval() if options.pop("narrow", False) else None
    module = module.double().eval()
    if narrow is not None:
        module.module.config._experts_implementation = "eager"
    x = tuple(a.double() if a.is_floating_point() else a for a in x) if isinstance(x, tuple) else (
        x.double() if x.is_floating_point() else x
    )  # fmt: skip
    start = seconds()
    with Widened():
        y, K = reference(module, x, bool(options.get("whole")))
    row: dict[str, Any] = {"name": name, "parameters": sum(p.numel() for p in module.parameters())}
    row["torch"] = seconds() - start
    start = seconds()
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            f, params = nm.from_torch(narrow or module, example=x, **options)
            row["conversion"] = seconds() - start
            start = seconds()
            params = {name: np.asarray(value, np.float64) for name, value in params.items()}
            data = array(x)[None] if options.get("whole") else array(x)
            kernel = np.asarray(nm.ntk(f, params, data))
            row["kernel"] = seconds() - start
        row["warnings"] = [str(w.message) for w in said if "neuromanifold" in str(w.filename)]
    except Exception as refusal:
        return row | {
            "refused": f"{type(refusal).__name__}: {refusal}",
            "conversion": seconds() - start,
        }
    with jax.enable_x64():
        own = jax.tree.leaves(f(params, data))
        outputs = np.concatenate([np.asarray(a).reshape(len(y), -1) for a in own], 1)
    row["outputs"] = float(np.abs(outputs - y).max() / np.abs(y).max())
    row["error"] = float(np.abs(kernel - K).max() / np.abs(K).max())
    if inspect:
        start = seconds()
        try:
            found = nm.inspect(f, params, data, patience=60)
            row["answered"] = sum(not p.left_out for p in found.parts)
            row["left out"] = {p.title: p.left_out for p in found.parts if p.left_out}
        except Exception as refusal:
            row["inspect refused"] = f"{type(refusal).__name__}: {refusal}"
        row["inspect"] = seconds() - start
    return row


def main() -> None:
    """Try all, or those whose names contain a word."""
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("names", nargs="*")
    ask.add_argument("--json", type=Path)
    ask.add_argument("--inspect", action="store_true")
    asked = ask.parse_args()
    warnings.simplefilter("ignore")
    _operators_of_torchvision()
    chosen = [n for n in ZOO if not asked.names or any(word in n for word in asked.names)]
    if asked.json and asked.json.exists():
        done = {json.loads(line)["name"] for line in asked.json.read_text().splitlines()}
        chosen = [name for name in chosen if name not in done]
    right = 0
    for name in chosen:
        try:
            row = tried(name, asked.inspect)
        except ImportError as absent:
            print(f"absent {name:36} {absent}", flush=True)
            continue
        except Exception as own:
            print(f"fails in PyTorch: {name:24} {type(own).__name__}: {own}", flush=True)
            continue
        good = row.get("error", 1) <= 1e-12 and row["outputs"] <= 1e-12
        right += good
        print(
            f"{'' if good else 'BAD':4}{name:40}"
            + (
                row["refused"]
                if "refused" in row
                else f"{row['conversion']:6.1f} s, kernel {row['kernel']:5.1f} s (torch.func {row['torch']:5.1f}), outputs {row['outputs']:.0e}, kernel {row['error']:.0e}"  # noqa: E501
            ),
            flush=True,
        )
        if asked.json:
            with asked.json.open("a") as file:
                file.write(json.dumps(row) + "\n")
        jax.clear_caches()
        gc.collect()
    print(f"{right} of {len(chosen)} convert, with the kernel of PyTorch to 1e-12")


if __name__ == "__main__":
    main()
