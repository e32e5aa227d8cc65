"""Packages that are imported where they are used, and the sentence for those that are absent."""

import importlib
import sys
from typing import Any

_HOW = {
    "torch": "PyTorch is not installed; get its CPU build with `pip install torch --index-url "
    "https://download.pytorch.org/whl/cpu`.",
    "flax": "Flax is not installed; get it with `pip install flax`.",
    "haiku": "Haiku is not installed; get it with `pip install dm-haiku`.",
    "sklearn": "scikit-learn, which brings these data, is not installed; get it with `pip install "
    "scikit-learn`.",
}


def need(name: str) -> Any:
    """The package, or one sentence that says how to get it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ImportError(_HOW[name.partition(".")[0]]) from None


def find_loaded(name: str) -> Any:
    """The package where somebody has imported it already, else None: what it makes cannot be
    here without it.
    """
    return sys.modules.get(name)
