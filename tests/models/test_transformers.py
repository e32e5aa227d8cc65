"""Networks of Hugging Face, small and untrained: named inputs, masks, mappings for output,
float32 named in their code.
"""

import logging
import os
import warnings
from typing import Any

import jax
import numpy as np
import pytest
import torch

import neuromanifold as nm
from neuromanifold.inspection.recorder import MEASURES

os.environ.setdefault("HF_HUB_OFFLINE", "1")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    import transformers as hf
    from transformers import BertConfig, GPT2Config, LlamaConfig, ViTConfig

    logging.disable(logging.NOTSET)

SMALL = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2, "intermediate_size": 32}


def tokens(n: int) -> dict[str, torch.Tensor]:
    mask = (torch.arange(7) < torch.randint(3, 8, (n, 1))).long()
    return {"input_ids": torch.randint(0, 50, (n, 7)), "attention_mask": mask}


def images(n: int) -> dict[str, torch.Tensor]:
    return {"pixel_values": torch.randn(n, 3, 16, 16)}


CASES = {
    "BERT": (
        lambda: hf.BertForSequenceClassification(BertConfig(**SMALL, num_attention_heads=2)),
        tokens,
        {},
    ),
    "GPT-2": (
        lambda: hf.GPT2LMHeadModel(
            GPT2Config(vocab_size=50, n_embd=16, n_layer=2, n_head=2, n_positions=16)
        ),
        tokens,
        {"use_cache": False},
    ),
    "Llama": (
        lambda: hf.LlamaForCausalLM(
            LlamaConfig(**SMALL, num_attention_heads=4, num_key_value_heads=2)
        ),
        tokens,
        {"use_cache": False},
    ),
    "ViT": (
        lambda: hf.ViTForImageClassification(
            ViTConfig(
                hidden_size=16,
                num_hidden_layers=2,
                num_attention_heads=2,
                intermediate_size=32,
                image_size=16,
                patch_size=4,
            )
        ),
        images,
        {},
    ),
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_network_of_hugging_face(name: str):
    make, draw, kwargs = CASES[name]
    logging.disable(logging.WARNING)
    torch.manual_seed(0)
    module: Any = make().eval()
    f, params = nm.from_torch(module, example=draw(2), kwargs=kwargs)
    assert "float64" in f.evidence
    x = draw(4)
    with torch.no_grad():
        y = module(**x, **kwargs)
    found = f(params, {key: value.numpy() for key, value in x.items()})
    assert set(found) == set(y)
    np.testing.assert_allclose(found["logits"], y.logits.numpy(), rtol=1e-3, atol=1e-4)
    logits, _ = nm.from_torch(module, example=draw(2), kwargs=kwargs, output=lambda y: y.logits)
    assert (
        jax.eval_shape(logits, params, {key: value.numpy() for key, value in x.items()}).shape
        == y.logits.shape
    )
    logging.disable(logging.NOTSET)


@pytest.fixture
def only_the_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a tracker measures is tested elsewhere."""
    monkeypatch.setattr("neuromanifold.inspection.recorder.MEASURES", MEASURES[:1])


@pytest.mark.usefixtures("only_the_loss")
def test_a_callback_of_hugging_face_tracks_a_classifier():
    """As `Trainer` calls it: the model in training mode, a tokenizer's mapping for x, classes
    for y, the logits of its output.
    """
    torch.manual_seed(0)
    x, labels = hf.BatchEncoding(tokens(6)), torch.tensor([0, 1, 1, 0, 1, 0])
    model = hf.BertForSequenceClassification(
        BertConfig(**{**SMALL, "num_hidden_layers": 1}, num_attention_heads=2)
    )
    tracker = nm.Tracker(
        model, x, labels, every=2, loss=nm.losses.cross_entropy, output=lambda y: y.logits
    )

    class Watch(hf.TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            tracker.record(state.global_step)

        def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            tracker(state.global_step)

    model.train()
    Watch().on_train_begin(None, hf.TrainerState(global_step=0), None, model=model)
    with torch.no_grad():
        model.classifier.weight.mul_(2.0)
    for step in (1, 2):
        Watch().on_step_end(None, hf.TrainerState(global_step=step), None, model=model)
    assert model.training
    assert tracker.timeline.steps.tolist() == [0, 2]
    before, after = tracker.timeline.data["loss"].values
    assert before != after
    with torch.no_grad():
        expected = float(model.eval()(**x, labels=labels).loss)
    np.testing.assert_allclose(float(after), expected, rtol=1e-5)
