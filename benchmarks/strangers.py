"""Modules that nobody here wrote, and long ones as strangers write them: does `nm.from_torch` translate
them, is the kernel that of `torch.func`, how long until the first answer, and what does `inspect` say?

    .venv-torch/bin/python benchmarks/strangers.py FILE [--inspect SECONDS] [NAME …]
    .venv-torch/bin/python benchmarks/strangers.py FILE --table

Each module runs in a process of its own of at most 4 GB; its row goes to FILE (JSON lines), and a
run that was stopped goes on behind it. timm, torchvision and torch_geometric are tried where they
can be imported; modules of transformers are tiny random configurations. `--table` says what FILE
holds, in Markdown.
"""

import argparse
import contextlib
import copy
import importlib
import json
import math
import multiprocessing
import os
import random
import resource
import statistics
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import rnn

import neuromanifold as nm
from torch_zoo import ZOO as SHORT
from torch_zoo import Wrapped

ZOO: dict[str, Callable[[], tuple[Any, ...]]] = {}
MEMORY = 4 * 2**30


def stranger(*draw: Callable[[], Any], **parts: Callable[[], Any]) -> Callable[[Any], Any]:
    """Enter a forward pass under its name, with what makes its inputs and its parts."""

    def enter(run: Callable[..., Any]) -> Callable[..., Any]:
        def make() -> tuple[nn.Module, Any]:
            module = Wrapped(run, **{name: part() for name, part in parts.items()})
            x = tuple(one() for one in draw)
            return module, x if len(x) > 1 else x[0]

        ZOO[run.__name__.replace("_", " ")] = make
        return run

    return enter


def real(*shape: int) -> Callable[[], Tensor]:
    return lambda: torch.randn(*shape)


def tokens(*shape: int, low: int = 0, high: int = 11) -> Callable[[], Tensor]:
    return lambda: torch.randint(low, high, shape)


def linear(i: int, o: int, bias: bool = True) -> Callable[[], nn.Module]:
    return lambda: nn.Linear(i, o, bias)


def conv(*args: Any, **kwargs: Any) -> Callable[[], nn.Module]:
    return lambda: nn.Conv2d(*args, **kwargs)


def weight(*shape: int, scale: float = 1.0) -> Callable[[], nn.Parameter]:
    return lambda: nn.Parameter(scale * torch.randn(shape))


def chain(*makers: Any) -> Callable[[], nn.Module]:
    """Layers one behind the other, each by a maker, a module without state, or (in, out)."""

    def layer(m: Any) -> nn.Module:
        return nn.Linear(*m) if isinstance(m, tuple) else m if isinstance(m, nn.Module) else m()

    return lambda: nn.Sequential(*map(layer, makers))


def several(n: int, make: Callable[[int], nn.Module]) -> Callable[[], nn.Module]:
    return lambda: nn.ModuleList(make(i) for i in range(n))


# fmt: off
# ruff: noqa: E501, E731

# --- transformers, timm, torchvision, torch_geometric --------------------------------------------

words, images = tokens(2, 7, low=3, high=30), real(2, 3, 16, 16)
TEXT = dict(vocab_size=30, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, max_position_embeddings=16)
DECODER = {**TEXT, "num_key_value_heads": 1, "head_dim": 8}
VISION = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, image_size=16, patch_size=8)
EXPERTS = {**DECODER, "num_experts_per_tok": 2}
CLIP = {"projection_dim": 4}
BART = dict(vocab_size=30, d_model=16, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=24, decoder_ffn_dim=24, encoder_attention_heads=2, decoder_attention_heads=2, max_position_embeddings=16, pad_token_id=1, bos_token_id=0, eos_token_id=2, decoder_start_token_id=2)
SEGFORMER = dict(num_encoder_blocks=2, depths=[1, 1], sr_ratios=[2, 1], hidden_sizes=[8, 16], patch_sizes=[3, 3], strides=[2, 2], num_attention_heads=[1, 2], mlp_ratios=[2, 2], decoder_hidden_size=8)
WAV2VEC = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, conv_dim=[8, 8], conv_stride=[4, 2], conv_kernel=[8, 3], num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2, num_feat_extract_layers=2)
STATE, POOLED = "last_hidden_state", "pooler_output"
HUGGING_FACE: dict[str, tuple[str, dict[str, Any], str, Callable[[], Any]]] = {
    "BERT": ("BertModel", TEXT, POOLED, words),
    "RoBERTa": ("RobertaForSequenceClassification", {**TEXT, "pad_token_id": 1}, "logits", words),
    "DistilBERT": ("DistilBertModel", dict(vocab_size=30, dim=16, n_layers=2, n_heads=2, hidden_dim=24, max_position_embeddings=16), STATE, words),
    "ALBERT": ("AlbertModel", {**TEXT, "embedding_size": 8}, POOLED, words),
    "ELECTRA": ("ElectraModel", {**TEXT, "embedding_size": 8}, STATE, words),
    "DeBERTa-v2": ("DebertaV2Model", {**TEXT, "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 4}, STATE, words),
    "GPT-2": ("GPT2LMHeadModel", dict(vocab_size=30, n_embd=16, n_layer=2, n_head=2, n_positions=16), "logits", words),
    "GPT-NeoX": ("GPTNeoXModel", TEXT, STATE, words),
    "OPT": ("OPTModel", dict(vocab_size=30, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, ffn_dim=24, max_position_embeddings=16, word_embed_proj_dim=16), STATE, words),
    "BLOOM": ("BloomModel", dict(vocab_size=30, hidden_size=16, n_layer=2, n_head=2), STATE, words),
    "Llama": ("LlamaForCausalLM", DECODER, "logits", words),
    "Mistral": ("MistralForCausalLM", {**DECODER, "sliding_window": 4}, "logits", words),
    "Mixtral": ("MixtralForCausalLM", {**EXPERTS, "num_local_experts": 3}, "logits", words),
    "Qwen2": ("Qwen2ForCausalLM", DECODER, "logits", words),
    "Qwen2-MoE": ("Qwen2MoeForCausalLM", {**EXPERTS, "num_experts": 3, "moe_intermediate_size": 8, "shared_expert_intermediate_size": 8}, "logits", words),
    "Gemma": ("GemmaForCausalLM", DECODER, "logits", words),
    "Gemma-2": ("Gemma2ForCausalLM", DECODER, "logits", words),
    "Phi": ("PhiForCausalLM", {**TEXT, "partial_rotary_factor": 0.5}, "logits", words),
    "Falcon": ("FalconModel", dict(vocab_size=30, hidden_size=16, num_hidden_layers=2, num_attention_heads=2), STATE, words),
    "OLMo": ("OlmoForCausalLM", {k: v for k, v in DECODER.items() if k != "head_dim"}, "logits", words),
    "T5 encoder": ("T5EncoderModel", dict(vocab_size=30, d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2), STATE, words),
    "BART encoder": ("BartModel", BART, STATE, words),
    "ViT": ("ViTForImageClassification", VISION, "logits", images),
    "DeiT": ("DeiTModel", VISION, STATE, images),
    "BEiT": ("BeitModel", {**VISION, "use_relative_position_bias": True}, POOLED, images),
    "DINOv2": ("Dinov2Model", VISION, STATE, images),
    "Swin": ("SwinModel", dict(image_size=16, patch_size=2, embed_dim=8, depths=[2, 2], num_heads=[2, 2], window_size=4), POOLED, images),
    "ConvNeXt": ("ConvNextModel", dict(hidden_sizes=[8, 16], depths=[1, 1], num_stages=2, patch_size=2), POOLED, images),
    "SegFormer": ("SegformerForImageClassification", SEGFORMER, "logits", images),
    "RegNet": ("RegNetModel", dict(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], groups_width=8), POOLED, images),
    "Whisper encoder": ("models.whisper.modeling_whisper.WhisperEncoder", dict(num_mel_bins=6, d_model=16, encoder_layers=2, encoder_attention_heads=2, encoder_ffn_dim=24, max_source_positions=5), STATE, real(2, 6, 10)),
    "CLIP vision": ("CLIPVisionModelWithProjection", {**VISION, **CLIP}, "image_embeds", images),
    "CLIP text": ("CLIPTextModelWithProjection", {**TEXT, **CLIP, "eos_token_id": 29, "bos_token_id": 28, "pad_token_id": 1}, "text_embeds", words),
    "Wav2Vec2": ("Wav2Vec2Model", WAV2VEC, STATE, real(2, 100)),
    "Mamba": ("MambaForCausalLM", dict(vocab_size=30, hidden_size=16, state_size=4, num_hidden_layers=2), "logits", words),
    "RWKV": ("RwkvModel", dict(vocab_size=30, hidden_size=16, num_hidden_layers=2, context_length=16), STATE, words),
    "PatchTST": ("PatchTSTForRegression", dict(num_input_channels=2, context_length=16, patch_length=4, patch_stride=4, d_model=8, num_hidden_layers=1, num_attention_heads=2, ffn_dim=12, num_targets=2), "regression_outputs", real(2, 16, 2)),
    "Perceiver": ("PerceiverModel", dict(num_latents=4, d_latents=8, d_model=6, num_blocks=1, num_self_attends_per_block=1, num_self_attention_heads=2, num_cross_attention_heads=2), STATE, real(2, 5, 6)),
}

def hugging_face(kind: str, config: dict[str, Any], field: str, draw: Callable[[], Any]) -> tuple[Any, ...]:
    path, _, name = f"transformers.{kind}".rpartition(".")
    model = getattr(importlib.import_module(path), name)
    module = Wrapped(lambda self, x: getattr(self.module(x), field), module=model(model.config_class(**config)))
    # PyTorch's grouped products know no float64: there the reference loops over the experts.
    return module, draw(), {"narrow": True} if "moe" in kind.lower() or "Mixt" in kind else {}

def timm_model(name: str) -> tuple[Any, ...]:
    import timm  # type: ignore[import-not-found]

    return timm.create_model(name, num_classes=3, **({"img_size": 64} if "vit" in name else {})), torch.randn(2, 3, 64, 64)

VISION_MODELS: dict[str, Callable[[Any], nn.Module]] = {
    "DenseNet": lambda m: m.DenseNet(4, (2, 2), 8, num_classes=3),
    "MobileNetV2": lambda m: m.MobileNetV2(3, 0.25, [[1, 16, 1, 1], [6, 24, 2, 2], [6, 32, 2, 2]]),
    "MobileNetV3": lambda m: m.mobilenet_v3_small(width_mult=0.25, num_classes=3),
    "ShuffleNet": lambda m: m.ShuffleNetV2([1, 2, 1], [8, 8, 16, 32, 32], num_classes=3),
    "SqueezeNet": lambda m: m.SqueezeNet("1_1", 3),
    "ResNet": lambda m: m.ResNet(m.resnet.BasicBlock, [1, 1, 1, 1], num_classes=3),
    "Inception block": lambda m: nn.Sequential(m.inception.InceptionA(3, 4), m.inception.InceptionB(228), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(708, 3)),
    "Swin": lambda m: m.SwinTransformer([2, 2], 8, [1, 1], [2, 2], [4, 4], num_classes=3),
}
def torchvision_model(name: str) -> tuple[Any, ...]:
    import torchvision.models as m  # type: ignore[import-not-found]

    return VISION_MODELS[name](m), torch.randn(2, 3, 32, 32)

GRAPH_LAYERS: dict[str, Callable[[Any], list[nn.Module]]] = {
    "GCN": lambda g: [g.GCNConv(3, 4), g.GCNConv(4, 2)],
    "GAT": lambda g: [g.GATConv(3, 4, heads=2), g.GATConv(8, 2)],
    "GIN": lambda g: [g.GINConv(chain((3, 5), nn.ReLU(), (5, 4))()), g.GINConv(chain((4, 5), nn.ReLU(), (5, 2))())],
    "SAGE": lambda g: [g.SAGEConv(3, 4), g.SAGEConv(4, 2, aggr="max")],
    "Cheb": lambda g: [g.ChebConv(3, 4, K=3)],
}

def geometric(name: str) -> tuple[Any, ...]:
    import torch_geometric.nn as g  # type: ignore[import-not-found]

    def run(self: Any, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x, self.edges))
        return x

    edges = torch.tensor([[0, 1, 2, 3, 0, 4], [1, 2, 3, 0, 2, 1]])
    return Wrapped(run, layers=nn.ModuleList(GRAPH_LAYERS[name](g)), edges=edges), torch.randn(5, 3), {"whole": True}

TIMM = ("resnet", "vit", "vit3", "efficientnet", "efficientnet_evos", "convnext", "byobnet", "nfnet", "mambaout", "maxvit")
ZOO |= {f"HF {name}": (lambda row=row: hugging_face(*row)) for name, row in HUGGING_FACE.items()}
ZOO |= {f"timm test_{name}": (lambda name=name: timm_model(f"test_{name}")) for name in TIMM}
ZOO |= {f"torchvision {name}": (lambda name=name: torchvision_model(name)) for name in VISION_MODELS}
ZOO |= {f"PyG {name}": (lambda name=name: geometric(name)) for name in GRAPH_LAYERS}

# --- long modules as strangers write them --------------------------------------------------------

@stranger(tokens(3, 5, low=1, high=12), lambda: torch.tensor([5, 3, 2]), embed=lambda: nn.Embedding(12, 5, padding_idx=0),
          lstm=lambda: nn.LSTM(5, 4, bidirectional=True, batch_first=True), out=linear(8, 3))
def packed_LSTM_tagger(self, ids, lengths):
    packed = rnn.pack_padded_sequence(self.embed(ids), lengths, batch_first=True, enforce_sorted=False)
    h, _ = rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=ids.shape[1])
    return self.out(h).mean(1)

@stranger(real(2, 4, 3), enc=lambda: nn.GRU(3, 6, batch_first=True), cell=lambda: nn.GRUCell(3, 6), v=linear(12, 1), out=linear(12, 3))
def GRU_sequence_to_sequence_with_attention(self, x):
    states, h = self.enc(x)
    h, y, ys = h[0], x.new_zeros(x.size(0), 3), []
    for _ in range(3):
        h = self.cell(y, h)
        e = self.v(torch.cat([states, h.unsqueeze(1).expand_as(states)], dim=2)).squeeze(2)
        c = torch.bmm(F.softmax(e, 1).unsqueeze(1), states).squeeze(1)
        y = self.out(torch.cat([h, c], 1))
        ys.append(y)
    return torch.stack(ys, dim=1)

@stranger(real(2, 4, 3), ih=linear(3, 16, False), hh=linear(4, 16, False), b=weight(16), ln_c=lambda: nn.LayerNorm(4))
def handmade_LSTM_with_layer_norm(self, x):
    h = c = torch.zeros(x.shape[0], 4, dtype=x.dtype, device=x.device)
    for t in range(x.shape[1]):
        i, f, g, o = (self.ih(x[:, t]) + self.hh(h) + self.b).chunk(4, 1)
        c = torch.sigmoid(f + 1) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(self.ln_c(c))
    return h

@stranger(lambda: torch.rand(3, 2), net=chain((2, 8), nn.Tanh(), (8, 8), nn.Tanh(), (8, 1)), nu=lambda: nn.Parameter(torch.tensor(0.01)))
def PINN_Burgers_autograd_grad(self, tx):
    t, x = (tx[:, i : i + 1].clone().requires_grad_(True) for i in range(2))
    u = self.net(torch.cat([t, x], 1))
    ones = torch.ones_like(u)
    u_t, u_x = (torch.autograd.grad(u, a, ones, create_graph=True)[0] for a in (t, x))
    u_xx = torch.autograd.grad(u_x, x, ones, create_graph=True, retain_graph=True)[0]
    return torch.hstack([u, u_t + u * u_x - self.nu * u_xx])

@stranger(real(3, 2), l1=linear(2, 7), l2=linear(7, 1))
def PINN_Laplacian_func_hessian(self, x):
    u = lambda p: self.l2(torch.sin(self.l1(p))).squeeze(-1)
    return torch.vmap(torch.func.hessian(u))(x).diagonal(dim1=-2, dim2=-1).sum(-1, keepdim=True) + 1.0

@stranger(real(3, 4), H=chain((4, 8), nn.Softplus(), (8, 1)))
def Hamiltonian_network(self, z):
    with torch.enable_grad():
        z = z.requires_grad_()
        dH = torch.autograd.grad(self.H(z).sum(), z, create_graph=True)[0]
    q, p = dH.split(2, -1)
    return torch.cat((p, -q), -1)

@stranger(lambda: 0.5 * torch.randn(2, 4), L=chain((4, 6), nn.Softplus(), (6, 1)))
def Lagrangian_network_solve(self, s):
    lag = lambda q, v: self.L(torch.cat([q, v]))[0] + 2 * (v**2).sum()

    def acceleration(s):
        q, v = s[:2], s[2:]
        mass = torch.func.hessian(lag, argnums=1)(q, v)
        force = torch.func.grad(lag, argnums=0)(q, v)
        mixed = torch.func.jacrev(torch.func.grad(lag, argnums=1), argnums=0)(q, v)
        return torch.linalg.solve(mass, force - mixed @ v)

    return torch.vmap(acceleration)(s)

@stranger(real(3, 4), mask=lambda: torch.tensor([[0.0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1]]),
          s=several(3, lambda i: chain((4, 6), nn.LeakyReLU(), (6, 4), nn.Tanh())()),
          t=several(3, lambda i: chain((4, 6), nn.LeakyReLU(), (6, 4))()))
def RealNVP_log_likelihood(self, x):
    log_det, z = x.new_zeros(x.shape[0]), x
    for i in reversed(range(len(self.t))):
        z_ = self.mask[i] * z
        s, t = self.s[i](z_) * (1 - self.mask[i]), self.t[i](z_) * (1 - self.mask[i])
        z = (1 - self.mask[i]) * (z - t) * torch.exp(-s) + z_
        log_det -= s.sum(dim=1)
    prior = torch.distributions.MultivariateNormal(torch.zeros(4, dtype=x.dtype), torch.eye(4, dtype=x.dtype))
    return prior.log_prob(z) + log_det

@stranger(real(2, 4, 3, 3), p=lambda: torch.eye(4)[[1, 0, 3, 2]], sign_s=lambda: torch.tensor([1.0, -1, 1, -1]),
          l=weight(4, 4), u=weight(4, 4), log_s=weight(4), loc=weight(1, 4, 1, 1), log_scale=weight(1, 4, 1, 1))
def Glow_step_with_LU_convolution(self, x):
    l = self.l * torch.tril(torch.ones_like(self.l), -1) + torch.eye(4, dtype=x.dtype)
    w = self.p @ l @ (torch.triu(self.u, 1) + torch.diag(self.sign_s * torch.exp(self.log_s)))
    z = F.conv2d((x + self.loc) * self.log_scale.exp(), w[:, :, None, None])
    return z.flatten(1), (self.log_s.sum() + self.log_scale.sum()).mul(9).expand(len(x), 1)

@stranger(real(3, 2), net=chain((1, 8), nn.ReLU(), (8, 13)))
def neural_spline_coupling(self, x):
    a, b = x[:, :1], x[:, 1:].squeeze(-1)
    w, h, d = self.net(a).split([4, 4, 5], dim=-1)
    w, h, d = F.softmax(w, -1), F.softmax(h, -1), F.softplus(d) + 1e-3
    cw, ch = F.pad(w.cumsum(-1), (1, 0)), F.pad(h.cumsum(-1), (1, 0))
    inside = torch.sigmoid(b)
    k = torch.searchsorted(cw.detach().contiguous(), inside[:, None].detach()).clamp(1, 4) - 1
    pick = lambda t: t.gather(-1, k).squeeze(-1)
    xk, yk, wk, hk, d0, d1 = *map(pick, (cw, ch, w, h, d)), d.gather(-1, k + 1).squeeze(-1)
    xi, s = (inside - xk) / wk, hk / wk
    y = yk + hk * (s * xi**2 + d0 * xi * (1 - xi)) / (s + (d1 + d0 - 2 * s) * xi * (1 - xi))
    return torch.stack([a.squeeze(-1), y], -1)

@stranger(real(2, 2), f=chain((3, 8), nn.Tanh(), (8, 2)))
def continuous_flow_with_trace(self, z):
    log_p = -(z**2).sum(1) / 2
    for step in range(3):
        t = torch.tensor(step / 3, dtype=z.dtype)
        one = lambda p, t=t: self.f(torch.cat([p, t.reshape(1)]))
        dz, slopes = torch.vmap(one)(z), torch.vmap(torch.func.jacrev(one))(z)
        z, log_p = z + dz / 3, log_p - slopes.diagonal(dim1=1, dim2=2).sum(1) / 3
    return torch.cat([z, log_p[:, None]], 1)

@stranger(lambda: torch.rand(2, 1, 8, 8), enc=chain(conv(1, 4, 3, 2, 1), lambda: nn.BatchNorm2d(4), nn.LeakyReLU(0.2), nn.Flatten()), fc_mu=linear(64, 3),
          fc_var=linear(64, 3), dec=chain((3, 64), nn.Unflatten(1, (4, 4, 4)), lambda: nn.ConvTranspose2d(4, 1, 4, 2, 1), nn.Sigmoid()))
def VAE_in_eval_mode(self, x):
    h = self.enc(x)
    mu, logvar = self.fc_mu(h), self.fc_var(h)
    z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar) if self.training else mu
    return [self.dec(z), mu, logvar]

@stranger(real(3, 4), enc=linear(4, 3), dec=linear(3, 4), codebook=lambda: nn.Embedding(5, 3))
def VQ_VAE_straight_through(self, x):
    z, c = self.enc(x), self.codebook.weight
    d = z.pow(2).sum(1, keepdim=True) - 2 * z @ c.t() + c.pow(2).sum(1)
    q = self.codebook(d.argmin(1))
    return self.dec(z + (q - z).detach())

def double(i: int, o: int) -> Callable[[], nn.Module]:
    return chain(*(m for a in (i, o) for m in (conv(a, o, 3), lambda: nn.BatchNorm2d(o), lambda: nn.ReLU(inplace=True))))

@stranger(real(2, 1, 20, 20), a=double(1, 4), b=double(4, 8), c=double(8, 4), up=lambda: nn.ConvTranspose2d(8, 4, 2, 2), out=conv(4, 2, 1))
def U_Net_with_crops(self, x):
    s = self.a(x)
    y = self.up(self.b(F.max_pool2d(s, 2)))
    d = (s.shape[-1] - y.shape[-1]) // 2
    s = s[:, :, d : d + y.shape[2], d : d + y.shape[3]]
    return self.out(self.c(torch.cat((s, y), 1)))

@stranger(real(2, 2, 5, 5), head=linear(8, 2),
          layers=several(3, lambda i: chain(lambda: nn.BatchNorm2d(2 + 2 * i), nn.ReLU(), conv(2 + 2 * i, 2, 3, padding=1))()))
def dense_network_with_checkpoint(self, x):
    from torch.utils.checkpoint import checkpoint

    for layer in self.layers:
        x = torch.cat([x, checkpoint(layer, x, use_reentrant=False)], 1)
    return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))

@stranger(real(2, 3, 6, 6), b1=conv(3, 2, 1), b3=conv(3, 2, 5, padding="same"),
          b2=chain(conv(3, 2, 1), conv(2, 2, (1, 3), padding=(0, 1)), conv(2, 2, (3, 1), padding=(1, 0))))
def inception_module(self, x):
    pooled = F.avg_pool2d(x, 3, 1, 1, count_include_pad=False)
    return torch.cat([*(F.relu(b(x)) for b in (self.b1, self.b2, self.b3)), pooled], 1).mean([2, 3])

def mb_conv(i: int, o: int, s: int) -> nn.Module:
    def run(self, x):
        y = self.body(x)
        y = self.tail(y * self.se(y))
        return x + y if s == 1 and i == o else y

    h, norm = 2 * i, lambda: nn.BatchNorm2d(2 * i)
    return Wrapped(run, tail=chain(conv(h, o, 1, bias=False), lambda: nn.BatchNorm2d(o))(),
                   body=chain(conv(i, h, 1, bias=False), norm, nn.SiLU(True), conv(h, h, 3, s, 1, groups=h, bias=False), norm, nn.SiLU(True))(),
                   se=chain(nn.AdaptiveAvgPool2d(1), conv(h, 2, 1), nn.SiLU(), conv(2, h, 1), nn.Sigmoid())())

@stranger(images, stem=chain(conv(3, 4, 3, 2, 1, bias=False), lambda: nn.BatchNorm2d(4), nn.SiLU()), head=linear(8, 3), drop=lambda: nn.Dropout(0.2),
          blocks=lambda: nn.Sequential(*(mb_conv(*row) for row in [(4, 4, 1), (4, 6, 2), (6, 6, 1), (6, 6, 1), (6, 8, 2), (8, 8, 1)])))
def EfficientNet_like(self, x):
    return self.head(self.drop(F.adaptive_avg_pool2d(self.blocks(self.stem(x)), 1).flatten(1)))

def standardised() -> nn.Module:
    def run(self, x):
        w = F.batch_norm(self.c.weight.reshape(1, 3, -1), None, None, weight=self.gain.view(-1), training=True, momentum=0.0)
        return F.conv2d(x, w.reshape_as(self.c.weight), self.c.bias, 1, 1)

    return Wrapped(run, c=nn.Conv2d(3, 3, 3, padding=1), gain=nn.Parameter(torch.ones(3, 1, 1, 1)))

@stranger(real(2, 3, 5, 5), a=standardised, b=standardised, skip_gain=lambda: nn.Parameter(torch.tensor(0.3)))
def weight_standardised_NF_block(self, x):
    y = self.b(F.gelu(self.a(F.gelu(x) * 1.7)) * 1.7)
    return (x + 0.2 * self.skip_gain * y).amax((2, 3))

@stranger(real(3, 4, 3), lambda: (torch.rand(3, 4) > 0.3).double(), phi=chain((3, 6), nn.ELU(), (6, 6)), rho=linear(6, 2))
def deep_sets(self, x, mask):
    h = self.phi(x) * mask.unsqueeze(-1)
    return self.rho(h.sum(1) / mask.sum(1, keepdim=True).clamp(min=1))

@stranger(real(2, 3, 7), conv=lambda: nn.Conv1d(3, 6, 1), bn=lambda: nn.BatchNorm1d(6), fc=linear(6, 9), head=linear(6, 2))
def PointNet_with_T_net(self, x):
    t = torch.max(F.relu(self.bn(self.conv(x))), 2, keepdim=True)[0].view(-1, 6)
    eye = torch.eye(3, dtype=x.dtype).view(1, 9).repeat(x.size(0), 1).view(-1, 3, 3)
    y = torch.bmm(x.transpose(2, 1), self.fc(t).view(-1, 3, 3) + eye).transpose(2, 1)
    return F.log_softmax(self.head(self.conv(y).max(dim=-1).values), dim=1)

@stranger(real(3, 4), z=weight(3), gen=linear(3, 25), target=lambda: nn.Linear(4, 5).requires_grad_(False))
def hypernetwork_functional_call(self, x):
    flat = self.gen(self.z)
    made = {"weight": flat[:20].view(5, 4), "bias": flat[20:]}
    return torch.func.functional_call(self.target, made, (x,)).relu()

@stranger(lambda: torch.rand(4, 2), a=linear(2, 8), b=linear(8, 8), c=linear(8, 1))
def SIREN_occupancy(self, x):
    return torch.sigmoid(self.c(torch.sin(30 * self.b(torch.sin(30 * self.a(x))))))

@stranger(real(3, 6), net=chain((15, 8), nn.ReLU(), (8, 4)))
def NeRF_with_volume_rendering(self, rays):
    o, d = rays[:, :3], F.normalize(rays[:, 3:], dim=-1)
    t = torch.linspace(0.0, 1.0, 5, dtype=rays.dtype)
    x = o[:, None] + d[:, None] * t[:, None]
    raw = self.net(torch.cat([x, *(wave(2.0**k * x) for k in range(2) for wave in (torch.sin, torch.cos))], -1))
    alpha = 1 - torch.exp(-F.relu(raw[..., 3] + 1.0) * (t[1] - t[0]))
    passed = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], -1), -1)[:, :-1]
    return ((alpha * passed)[..., None] * torch.sigmoid(raw[..., :3])).sum(1)

def kan_layer(i: int, o: int, grid: int = 4, order: int = 3) -> nn.Module:
    def run(self, x):
        g, z = self.grid, x.unsqueeze(-1)
        bases = ((z >= g[:, :-1]) & (z < g[:, 1:])).to(x.dtype)
        for k in range(1, order + 1):
            left = (z - g[:, : -(k + 1)]) / (g[:, k:-1] - g[:, : -(k + 1)]) * bases[:, :, :-1]
            bases = left + (g[:, k + 1 :] - z) / (g[:, k + 1 :] - g[:, 1:(-k)]) * bases[:, :, 1:]
        return F.linear(F.silu(x), self.base) + F.linear(bases.contiguous().view(x.size(0), -1), self.spline.view(o, -1))

    knots = (torch.arange(-order, grid + order + 1) * 2 / grid - 1).expand(i, -1).contiguous()
    return Wrapped(run, grid=knots, base=nn.Parameter(torch.randn(o, i)), spline=nn.Parameter(torch.randn(o, i, grid + order)))

@stranger(lambda: torch.rand(3, 2) * 2 - 1, a=lambda: kan_layer(2, 3), b=lambda: kan_layer(3, 1))
def KAN_with_B_splines(self, x):
    return self.b(self.a(x))

@stranger(real(2, 2), f=chain((3, 8), nn.Tanh(), (8, 2)), t=lambda: torch.linspace(0, 1, 5))
def neural_ODE_Runge_Kutta_4(self, y):
    rhs = lambda t, y: self.f(torch.cat([y, t.expand(y.shape[0], 1)], 1))
    path = [y]
    for t0, t1 in zip(self.t[:-1], self.t[1:], strict=True):
        h = t1 - t0
        k1 = rhs(t0, y)
        k2 = rhs(t0 + h / 2, y + h * k1 / 2)
        k3 = rhs(t0 + h / 2, y + h * k2 / 2)
        k4 = rhs(t1, y + h * k3)
        y = y + h * (k1 + 2 * k2 + 2 * k3 + k4) / 6
        path.append(y)
    return torch.stack(path, 1)

class Spike(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return (x > 0).to(x.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, g):
        return g / (1 + 10 * ctx.saved_tensors[0].abs()) ** 2

@stranger(real(3, 3), fc1=linear(3, 6), fc2=linear(6, 2))
def spiking_network_surrogate(self, x):
    v, out = torch.zeros(x.shape[0], 6, dtype=x.dtype), 0
    for _ in range(4):
        v = 0.9 * v + self.fc1(x)
        s = Spike.apply(v - 1.0)
        v, out = v * (1 - s), out + self.fc2(s)
    return out / 4

@stranger(real(3, 3), fc1=linear(3, 6), fc2=linear(6, 2))
def spiking_network_sigmoid_trick(self, x):
    v, out = torch.zeros(x.shape[0], 6, dtype=x.dtype), 0
    for _ in range(4):
        v = 0.9 * v + self.fc1(x)
        soft = torch.sigmoid(5 * (v - 1))
        s = (v > 1).to(x.dtype).detach() + soft - soft.detach()
        v, out = torch.where(v > 1, torch.zeros_like(v), v), out + self.fc2(s)
    return out / 4

@stranger(real(2, 4, 6), qkv=linear(6, 18, False), o=linear(6, 6))
def linear_attention(self, x):
    q, k, v = (t.unflatten(-1, (2, 3)) for t in self.qkv(x).chunk(3, -1))
    q, k = F.elu(q) + 1, F.elu(k) + 1
    kv = torch.cumsum(torch.einsum("nlhd,nlhm->nlhdm", k, v), 1)
    z = 1 / torch.einsum("nlhd,nlhd->nlh", q, k.cumsum(1)).clamp_min(1e-6)
    return self.o(torch.einsum("nlhd,nlhdm,nlh->nlhm", q, kv, z).flatten(-2))

@stranger(real(2, 5, 8), q=linear(8, 8), kv=linear(8, 8), o=linear(8, 8), slopes=lambda: torch.tensor([2.0**-4, 2.0**-8]))
def ALiBi_grouped_query_attention(self, x):
    n, t, _ = x.shape
    q = self.q(x).view(n, t, 2, 4).transpose(1, 2)
    k, v = (a.repeat_interleave(2, 1) for a in self.kv(x).view(n, t, 2, 1, 4).permute(2, 0, 3, 1, 4))
    bias = (torch.arange(t)[None] - torch.arange(t)[:, None]).to(x.dtype) * self.slopes.view(-1, 1, 1)
    bias = bias.masked_fill(torch.ones(t, t, dtype=torch.bool).triu(1), float("-inf"))
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias.expand(n, 2, t, t))
    return self.o(y.transpose(1, 2).reshape(n, t, 8))

@stranger(tokens(2, 5), embed=lambda: nn.Embedding(11, 8), out=linear(8, 5),
          decoder=lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, batch_first=True), 2))
def decoder_layer_with_generated_mask(self, ids):
    x = self.embed(ids) * math.sqrt(8)
    mask = nn.Transformer.generate_square_subsequent_mask(ids.size(1))
    return self.out(self.decoder(x, x.flip(1), tgt_mask=mask.to(x.dtype)))

@stranger(lambda: torch.tensor([[3, 4, 5, 0, 0], [1, 2, 3, 4, 0]]), embed=lambda: nn.Embedding(11, 8, padding_idx=0), out=linear(8, 3),
          enc=lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2))
def encoder_with_padding_mask(self, ids):
    pad = ids == 0
    h = self.enc(self.embed(ids), src_key_padding_mask=pad).masked_fill(pad[..., None], 0.0)
    return self.out(h.sum(1) / (~pad).sum(1, keepdim=True))

@stranger(real(2, 4, 8), real(2, 3, 8), t=lambda: nn.Transformer(8, 2, 1, 1, 16, batch_first=True, norm_first=True))
def full_transformer(self, a, b):
    return self.t(a, b, tgt_mask=self.t.generate_square_subsequent_mask(b.size(1), dtype=b.dtype))

def relative_places() -> Tensor:
    c = torch.stack(torch.meshgrid(torch.arange(2), torch.arange(2), indexing="ij")).flatten(1)
    r = (c[:, :, None] - c[:, None]).permute(1, 2, 0) + 1
    return r[..., 0] * 3 + r[..., 1]

@stranger(real(2, 4, 4, 4), qkv=linear(4, 12), proj=linear(4, 4), table=weight(9, 1), index=relative_places)
def axial_and_window_attention(self, x):
    n, h, w, c = x.shape
    x = torch.roll(x, (-1, -1), (1, 2))
    x = x.view(n, h // 2, 2, w // 2, 2, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 4, c)
    q, k, v = self.qkv(x).reshape(-1, 4, 3, c).unbind(2)
    a = q @ k.transpose(-2, -1) / c**0.5 + self.table[self.index.view(-1)].view(4, 4)
    x = self.proj(a.softmax(-1) @ v)
    x = x.view(n, h // 2, w // 2, 2, 2, c).permute(0, 1, 3, 2, 4, 5).reshape(n, h, w, c)
    return torch.roll(x, (1, 1), (1, 2)).mean((1, 2))

@stranger(real(2, 1, 8, 8), loc=chain(conv(1, 4, 3), nn.MaxPool2d(2, 2), lambda: nn.ReLU(True), nn.Flatten(), (36, 6)), cls=linear(64, 2))
def spatial_transformer_network(self, x):
    theta = self.loc(x).view(-1, 2, 3) + torch.tensor([[1, 0, 0.1], [0, 1, -0.1]], dtype=x.dtype)
    grid = F.affine_grid(theta, x.size(), align_corners=True)
    return self.cls(F.grid_sample(x, grid, mode="bilinear", padding_mode="border", align_corners=True).flatten(1))

@stranger(real(3, 4), f=chain((4, 6), nn.GELU(), (6, 3)), prototypes=weight(4, 3))
def prototypical_network_cdist(self, x):
    return -torch.cdist(self.f(x), self.prototypes, p=2.0)

@stranger(real(2, 1, 9), re=lambda: nn.Conv1d(1, 4, 5), im=lambda: nn.Conv1d(1, 4, 5), out=linear(4, 2))
def complex_modulus_hypot(self, x):
    y = self.out(torch.log1p(torch.hypot(self.re(x), self.im(x))).mean(-1))
    return y + torch.atan2(x[:, 0, :1], x[:, 0, 1:2])

@stranger(real(2, 8), weights=weight(2, 2, 3, 2, scale=0.25), lift=linear(1, 2), w=lambda: nn.Conv1d(2, 2, 1), out=linear(2, 1))
def Fourier_neural_operator(self, u):
    v = self.lift(u[..., None]).permute(0, 2, 1)
    ft = torch.fft.rfft(v)
    out = torch.zeros_like(ft)
    out[..., :3] = torch.einsum("bim,iom->bom", ft[..., :3], torch.view_as_complex(self.weights))
    v = F.gelu(torch.fft.irfft(out, n=v.size(-1)) + self.w(v))
    return self.out(v.permute(0, 2, 1)).squeeze(-1)

@stranger(real(2, 4, 6), w=weight(3, 4), head=linear(9, 2))
def SPD_network_eigh(self, x):
    s = self.w @ (x @ x.mT / x.shape[-1] + 0.1 * torch.eye(4, dtype=x.dtype)) @ self.w.T
    values, vectors = torch.linalg.eigh(s)
    return self.head(((vectors * values.clamp_min(1e-4).log().unsqueeze(-2)) @ vectors.mT).flatten(1))

@stranger(real(3, 2), f=chain((2, 5), nn.Tanh(), (5, 2)), xt=real(5, 2), yt=real(5, 1), log_l=weight(), log_n=lambda: nn.Parameter(torch.tensor(-2.0)))
def GP_head_with_Cholesky(self, x):
    k = lambda a, b: torch.exp(-0.5 * ((a[:, None] - b[None]) ** 2).sum(-1) / self.log_l.exp() ** 2)
    z, zt = self.f(x), self.f(self.xt)
    chol = torch.linalg.cholesky(k(zt, zt) + self.log_n.exp() * torch.eye(5, dtype=x.dtype))
    alpha = torch.cholesky_solve(self.yt, chol)
    v = torch.linalg.solve_triangular(chol, k(zt, z), upper=False)
    return torch.cat([k(z, zt) @ alpha, (1 - (v**2).sum(0))[:, None]], 1)

P = nn.utils.parametrizations

@stranger(real(3, 4), net=chain(lambda: P.spectral_norm(nn.Linear(4, 5)), nn.ReLU(), lambda: P.orthogonal(nn.Linear(5, 5)), nn.ReLU(), lambda: P.weight_norm(nn.Linear(5, 2))))
def spectral_and_orthogonal_parametrisations(self, x):
    return self.net(x)

@stranger(real(3, 4), gate=linear(4, 4, False), experts=several(4, lambda i: chain((4, 6), nn.SiLU(), (6, 4))()))
def top_two_mixture_of_experts_with_capacity_loop(self, x):
    scores, selected = torch.topk(F.softmax(self.gate(x), dim=1), 2, dim=-1)
    scores /= scores.sum(dim=-1, keepdim=True)
    out, mask = torch.zeros_like(x), F.one_hot(selected, num_classes=4).permute(2, 1, 0)
    for e in range(4):
        idx, top = torch.where(mask[e])
        out.index_add_(0, top, self.experts[e](x[top]) * scores[top, idx, None])
    return out

@stranger(real(2, 5, 4), phi=weight(4, 3, 2), w1=weight(3, 4, 5), w2=weight(3, 5, 4))
def soft_mixture_of_experts(self, x):
    logits = torch.einsum("bnd,dep->bnep", x, self.phi)
    dispatch, combine = logits.softmax(1), logits.flatten(2).softmax(-1).view_as(logits)
    s = F.gelu(torch.einsum("bepd,edf->bepf", torch.einsum("bnd,bnep->bepd", x, dispatch), self.w1))
    return torch.einsum("bepd,bnep->bnd", torch.einsum("bepf,efd->bepd", s, self.w2), combine)

@stranger(real(2, 5, 4), in_proj=linear(4, 8, False), conv=lambda: nn.Conv1d(4, 4, 3, groups=4, padding=2), x_proj=linear(4, 7, False), dt=linear(1, 4),
          A_log=lambda: nn.Parameter(torch.log(torch.arange(1.0, 4.0).repeat(4, 1))), D=weight(4), out=linear(4, 4, False))
def Mamba_like_selective_scan(self, u):
    x, res = self.in_proj(u).chunk(2, -1)
    x = F.silu(self.conv(x.transpose(1, 2))[..., : u.shape[1]].transpose(1, 2))
    delta, B, C = self.x_proj(x).split([1, 3, 3], -1)
    delta = F.softplus(self.dt(delta))
    dA = torch.exp(torch.einsum("bld,dn->bldn", delta, -torch.exp(self.A_log)))
    dBx = torch.einsum("bld,bln,bld->bldn", delta, B, x)
    h, ys = torch.zeros_like(dA[:, 0]), []
    for i in range(u.shape[1]):
        h = dA[:, i] * h + dBx[:, i]
        ys.append(torch.einsum("bdn,bn->bd", h, C[:, i]))
    return self.out((torch.stack(ys, 1) + x * self.D) * F.silu(res))

@stranger(real(2, 1, 10), start=lambda: nn.Conv1d(1, 4, 1), end=lambda: nn.Conv1d(3, 2, 1), f=several(3, lambda i: nn.Conv1d(4, 4, 2, dilation=2**i)),
          g=several(3, lambda i: nn.Conv1d(4, 4, 2, dilation=2**i)), skip=several(3, lambda i: nn.Conv1d(4, 3, 1)))
def WaveNet_with_gates(self, x):
    x, total = self.start(x), 0
    for f, g, s in zip(self.f, self.g, self.skip, strict=True):
        h = torch.tanh(f(x)) * torch.sigmoid(g(x))
        total = total[..., -h.size(-1) :] + s(h) if torch.is_tensor(total) else s(h)
        x = x[..., -h.size(-1) :] + h
    return self.end(F.relu(total))[..., -1]

@stranger(real(2, 1, 6, 6), lambda: torch.tensor([3, 700]), time=chain((8, 8), nn.SiLU(), (8, 8)), c1=conv(1, 8, 3, padding=1), c2=conv(8, 8, 3, 2, 1),
          c3=conv(16, 8, 3, padding=1), n1=lambda: nn.GroupNorm(4, 8), n2=lambda: nn.GroupNorm(4, 8), attn=lambda: nn.MultiheadAttention(8, 2, batch_first=True), out=conv(8, 1, 1))
def diffusion_U_Net_with_time_embedding(self, x, t):
    freq = torch.exp(-math.log(10000) * torch.arange(4, dtype=x.dtype) / 4)
    angle = t[:, None].to(x.dtype) * freq[None]
    emb = self.time(torch.cat([angle.sin(), angle.cos()], -1))
    a = F.silu(self.n1(self.c1(x))) + emb[..., None, None]
    b = F.silu(self.n2(self.c2(a)))
    s = b.flatten(2).transpose(1, 2)
    b = b + self.attn(s, s, s, need_weights=False)[0].transpose(1, 2).reshape(b.shape)
    b = F.interpolate(b, size=a.shape[-2:], mode="bilinear", align_corners=False)
    return self.out(F.silu(self.c3(torch.cat([a, b], 1))))

@stranger(real(2, 5), lambda: torch.rand(2, 4, 1), branch=chain((5, 8), nn.Tanh(), (8, 6)), trunk=chain((1, 8), nn.Tanh(), (8, 6)), b=weight(1))
def DeepONet(self, u, y):
    return torch.einsum("bp,bqp->bq", self.branch(u), self.trunk(y)) + self.b

@stranger(real(3, 5), bn=lambda: nn.BatchNorm1d(5), att=linear(4, 5), fc=linear(5, 8), out=linear(4, 2))
def TabNet_like_with_sparsemax(self, x):
    def sparsemax(z):
        s, _ = torch.sort(z, dim=-1, descending=True)
        k = torch.arange(1, z.size(-1) + 1, dtype=z.dtype)
        kz = ((1 + k * s) > s.cumsum(-1)).sum(-1, keepdim=True)
        return torch.clamp(z - (s.cumsum(-1).gather(-1, kz - 1) - 1) / kz.to(z.dtype), min=0)

    x = self.bn(x)
    a, total = x.new_zeros(x.size(0), 4), 0
    for _ in range(2):
        d, a = F.glu(self.fc(sparsemax(self.att(a) + x) * x).repeat(1, 2), -1).split(4, -1)
        total = total + F.relu(d)
    return self.out(total)

@stranger(tokens(3, 3, high=4), emb=several(3, lambda i: nn.Embedding(4 + i, 3)), lin=several(3, lambda i: nn.Embedding(4 + i, 1)),
          deep=chain((9, 6), nn.ReLU(), lambda: nn.Dropout(0.5), (6, 1)))
def factorisation_machine_with_embeddings(self, x):
    e = torch.stack([emb(x[:, i]) for i, emb in enumerate(self.emb)], 1)
    first = sum(lin(x[:, i]) for i, lin in enumerate(self.lin))
    second = 0.5 * (e.sum(1).square() - e.square().sum(1)).sum(1, keepdim=True)
    return torch.sigmoid(first + second + self.deep(e.flatten(1)))

@stranger(real(3, 6), blocks=several(3, lambda i: chain((6, 8), nn.ReLU(), (8, 8), nn.ReLU(), (8, 5))()))
def NBEATS(self, x):
    y, t = 0.0, torch.linspace(0, 1, 6, dtype=x.dtype)
    for block in self.blocks:
        back, fore = block(x).split([3, 2], -1)
        x, y = x - back @ torch.stack([t**i for i in range(3)]), y + fore
    return y

@stranger(real(2, 4, 4), real(2, 4, 3), e=chain((9, 6), nn.SiLU()), h=linear(10, 4), x=linear(6, 1, False))
def equivariant_message_passing(self, h, x):
    n, diff = h.size(1), x[:, :, None] - x[:, None]
    d2 = diff.pow(2).sum(-1, keepdim=True)
    m = self.e(torch.cat([h[:, :, None].expand(-1, -1, n, -1), h[:, None].expand(-1, n, -1, -1), d2], -1))
    m = m * (1 - torch.eye(n, dtype=m.dtype))[None, :, :, None]
    return h + self.h(torch.cat([h, m.sum(2)], -1)), x + (diff * self.x(m)).mean(2)

@stranger(real(2, 8), w=weight(1, 4, 2, 3, 2))
def capsules_with_routing(self, x):
    u, b = (self.w @ x.view(x.size(0), 4, 1, 2, 1)).squeeze(-1), torch.zeros(x.size(0), 4, 2, 1, dtype=x.dtype)
    for i in range(3):
        s = (b.softmax(2) * u).sum(1, keepdim=True)
        n = s.norm(dim=-1, keepdim=True)
        v = n**2 / (1 + n**2) * s / (n + 1e-8)
        if i < 2:
            b = b + (u * v).sum(-1, keepdim=True)
    return v.squeeze(1).norm(dim=-1)

@stranger(real(2, 4, 2), w=lambda: torch.randn(6, 6) / 4, w_in=real(6, 2), read=linear(6, 1))
def echo_state_network(self, x):
    with torch.no_grad():
        h = torch.zeros(x.size(0), 6, dtype=x.dtype)
        for t in range(x.size(1)):
            h = 0.7 * h + 0.3 * torch.tanh(x[:, t] @ self.w_in.T + h @ self.w.T)
    return self.read(h)

@stranger(real(3, 4), f=linear(4, 6))
def differentiable_sort_and_quantiles(self, x):
    z = self.f(x)
    return torch.cat([z.sort(-1).values[:, ::2], z.median(-1, keepdim=True).values, torch.quantile(z, 0.3, dim=-1, keepdim=True),
                      z.topk(2).values, z.logsumexp(-1, keepdim=True), z.kthvalue(2).values[:, None]], -1)

@stranger(real(3, 4), a=linear(4, 6), b=linear(6, 3))
def in_place_tensor_surgery(self, x):
    h = self.a(x)
    h[:, ::2] *= 2
    h[h < 0] = 0
    h[:, 1].add_(x[:, 0])
    pad = torch.empty_like(h).fill_(0.5)
    pad[:, 1:4] = h[:, 2:5]
    y = self.b(torch.where(pad > 0.2, pad, h.flip(1)))
    y.clamp_(-1, 1).mul_(3)
    return y.scatter_add(1, torch.tensor([[0, 1, 1]]).expand(len(y), -1), y)

@stranger(real(3, 4), blocks=several(3, lambda i: nn.Linear(4, 4)))
def module_with_stochastic_depth_and_losses(self, x):
    reg = 0.0
    for b in self.blocks:
        if self.training and torch.rand(()) < 0.5:
            continue
        y = F.dropout(torch.relu(b(x)), 0.1, self.training)
        reg, x = reg + b.weight.abs().mean(), x + y
    return {"logits": x, "regulariser": reg.expand(x.size(0))}

@stranger(real(3, 3), w=linear(4, 4), u=linear(3, 4))
def equilibrium_with_Anderson(self, x):
    z = torch.zeros(x.size(0), 4, dtype=x.dtype)
    with torch.no_grad():
        for _ in range(15):
            z = torch.tanh(0.2 * self.w(z) + self.u(x))
    return torch.tanh(0.2 * self.w(z) + self.u(x))

@stranger(real(3, 3), e=chain((3, 8), nn.SiLU(), (8, 1)))
def energy_based_score(self, x):
    return -torch.func.vmap(torch.func.grad(lambda v: self.e(v).squeeze()))(x)

@stranger(real(2, 2, 4, 4), f=linear(8, 3))
def mask_R_like_roi_pool_by_unfold(self, x):
    p = x.unfold(2, 2, 2).unfold(3, 2, 2).permute(0, 2, 3, 1, 4, 5).flatten(3)
    return self.f(p + F.pixel_unshuffle(x, 2).movedim(1, -1)).amax((1, 2))

# fmt: on
ZOO |= {name: (lambda row=row: (row[0](), row[1]())) for name, row in SHORT.items()}

# --- the measurement -----------------------------------------------------------------------------


def seconds() -> float:
    """Processor seconds of this process."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    return own.ru_utime + own.ru_stime


class Widened(torch.overrides.TorchFunctionMode):
    """PyTorch with float64 where code names float32 (the angles of rotary positions, say) or takes
    the default (`torch.arange(6) / 4`).
    """

    def __enter__(self) -> Any:
        torch.set_default_dtype(torch.float64)
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        torch.set_default_dtype(torch.float32)
        super().__exit__(*error)

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


class Reference:
    """A module's outputs, a row for each sample, and its Jacobian."""

    def __init__(self, module: nn.Module, x: Any, whole: bool):
        self.module, self.whole = module, whole
        self.inputs = x if isinstance(x, tuple) else (x,)
        self.weights = dict(module.named_parameters())
        self.trained = {n: p for n, p in self.weights.items() if p.requires_grad}

    def flat(self, chosen: dict[str, Tensor]) -> Tensor:
        with Widened():
            y = torch.func.functional_call(
                self.module, {**self.weights, **chosen}, tuple(x.clone() for x in self.inputs)
            )
        lead = 1 if self.whole else len(self.inputs[0])
        return torch.cat([part.reshape(lead, -1) for part in parts(y)], 1)

    def by_func(self) -> np.ndarray:
        """JJᵀ by `torch.func.jacrev`."""
        given = {name: p.detach() for name, p in self.trained.items()}
        slopes = torch.func.jacrev(lambda c: self.flat(c).ravel())(given)
        J = torch.cat([s.reshape(len(s), -1) for s in slopes.values()], 1)
        return (J @ J.T).detach().numpy()

    def by_rows(self) -> np.ndarray:
        """JJᵀ by `torch.autograd.grad`, row by row."""
        rows, kept = [], list(self.trained.values())
        for y in self.flat({}).ravel():
            slopes = torch.autograd.grad(y, kept, retain_graph=True, materialize_grads=True)
            rows.append(torch.cat([s.ravel() for s in slopes]))
        J = torch.stack(rows)
        return (J @ J.T).detach().numpy()


def far(a: np.ndarray, b: np.ndarray) -> float:
    """The largest difference over the largest entry."""
    return float(np.abs(a - b).max() / np.abs(b).max())


def tried(name: str, patience: float) -> dict[str, Any]:
    """What became of one module."""
    torch.manual_seed(0)
    module, x, options = (*ZOO[name](), {})[:3]
    narrow = copy.deepcopy(module).eval() if options.pop("narrow", False) else None
    module, whole = module.double().eval(), bool(options.get("whole"))
    if narrow is not None:
        module.module.config._experts_implementation = "eager"
    wide = [
        a.double() if a.is_floating_point() else a for a in (x if isinstance(x, tuple) else (x,))
    ]
    x = tuple(wide) if isinstance(x, tuple) else wide[0]
    reference, start, K = Reference(module, x, whole), seconds(), None
    y = reference.flat({}).detach().numpy()
    with contextlib.suppress(RuntimeError):
        K = reference.by_func()
    row: dict[str, Any] = {"name": name, "parameters": sum(p.numel() for p in module.parameters())}
    row["torch"], start = seconds() - start, seconds()
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            f, params = nm.from_torch(narrow or module, example=x, **options)
            row["conversion"], start = seconds() - start, seconds()
            params = {name: np.asarray(value, np.float64) for name, value in params.items()}
            data = tuple(a.numpy()[None] if whole else a.numpy() for a in wide)
            data = data if isinstance(x, tuple) else data[0]
            kernel = np.asarray(nm.ntk(f, params, data))
            row["kernel"] = seconds() - start
        row["warnings"] = [str(w.message) for w in said if "neuromanifold" in str(w.filename)]
    except Exception as refusal:
        kind = type(refusal).__name__
        return row | {"refused": f"{kind}: {refusal}", "conversion": seconds() - start}
    with jax.enable_x64():
        own = jax.tree.leaves(f(params, data))
        outputs = np.concatenate([np.asarray(a).reshape(len(y), -1) for a in own], 1)
    row["outputs"], row["error"] = far(outputs, y), np.inf if K is None else far(kernel, K)
    if row["error"] > 1e-12:
        # torch.func cannot differentiate what differentiates itself, and is wrong for `cdist`.
        row["torch.func"] = None if K is None else row["error"]
        row["error"] = far(kernel, reference.by_rows())
    if patience:
        start = seconds()
        try:
            found = nm.inspect(f, params, data, patience=patience).parts
            row["sections"] = len(found)
            row["left out"] = {p.title: p.left_out for p in found if p.left_out}
        except Exception as refusal:
            row["inspect refused"] = f"{type(refusal).__name__}: {refusal}"
        row["inspect"] = seconds() - start
    row["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return row


def one(name: str, patience: float, place: Path) -> None:
    """Add the row of one module to a file."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    try:
        row = tried(name, patience)
    except ImportError as absent:
        row = {"name": name, "absent": str(absent)}
    except Exception as own:
        row = {"name": name, "fails in PyTorch": f"{type(own).__name__}: {own}"}
    with place.open("a") as file:
        file.write(json.dumps(row) + "\n")


def is_right(row: dict[str, Any]) -> bool:
    return row.get("error", 1) <= 1e-12 and row["outputs"] <= 1e-12


FAMILIES = {"HF": "transformers", "timm": "timm", "torchvision": "torchvision", "PyG": "torch_geometric"}  # fmt: skip


def family(name: str) -> str:
    """Where a module comes from."""
    return FAMILIES.get(name.split()[0]) or ("short ones" if name in SHORT else "long ones")


def table(rows: list[dict[str, Any]]) -> str:
    """What the rows come to, in Markdown."""

    def line(title: str, mine: list[dict[str, Any]]) -> str:
        right = [row for row in mine if is_right(row)]
        first = [row["conversion"] + row["kernel"] for row in right]
        medians = [
            statistics.median(values)
            for values in ([row["conversion"] for row in right], first, [r["torch"] for r in right])
        ]
        answered = [1 - len(r["left out"]) / r["sections"] for r in right if "sections" in r]
        worst = max(row["error"] for row in right)
        return (
            f"| {title} | {len(mine)} | {len(right)} | {worst:.0e} | {medians[0]:.1f} | "
            f"{medians[1]:.1f} | {medians[2]:.2f} | "
            f"{f'{statistics.mean(answered):.0%} ({len(answered)})' if answered else ''} |"
        )

    rows = [row for row in rows if not {"absent", "fails in PyTorch"} & set(row)]
    titles = dict.fromkeys(family(row["name"]) for row in rows)
    return "\n".join(
        [
            "| modules | tried | convert | kernel off, at most | conversion, s | first kernel, s | "
            "`torch.func`, s | sections of `inspect` |",
            "|---|---|---|---|---|---|---|---|",
            *(line(title, [r for r in rows if family(r["name"]) == title]) for title in titles),
            line("all", rows),
            "",
            *(f"- {row['name']}: {row.get('refused') or row}" for row in rows if not is_right(row)),
        ]
    )


def main() -> None:
    """Try all, or those whose names contain a word, each in a process of its own."""
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("file", type=Path)
    ask.add_argument("names", nargs="*")
    ask.add_argument("--inspect", type=float, default=0.0, metavar="SECONDS")
    ask.add_argument("--table", action="store_true")
    asked = ask.parse_args()
    held = asked.file.read_text().splitlines() if asked.file.exists() else []
    rows = {row["name"]: row for row in map(json.loads, held)}
    if asked.table:
        return print(table(list(rows.values())))
    warnings.simplefilter("ignore")
    # The wheel of torchvision is built for CUDA; without its library its operators must be named.
    library = torch.library.Library("torchvision", "FRAGMENT")
    for operator in ("nms", "qnms"):
        library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    # Imported once for all.
    torch.func.jacrev(torch.sin)(torch.zeros(1))
    for package in ("transformers", "torchvision", "timm", "torch_geometric.nn", "torch._export"):
        with contextlib.suppress(ImportError):
            importlib.import_module(package)
    for name in random.Random(0).sample(list(ZOO), len(ZOO)):  # a stopped run is a fair sample
        if name in rows or (asked.names and not any(word in name for word in asked.names)):
            continue
        child = multiprocessing.get_context("fork").Process(
            target=one, args=(name, asked.inspect, asked.file)
        )
        child.start()
        child.join()
        if child.exitcode:
            with asked.file.open("a") as file:
                file.write(json.dumps({"name": name, "killed": child.exitcode}) + "\n")
        print(asked.file.read_text().splitlines()[-1], flush=True)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
