"""Where data files live: the folder that `NEUROMANIFOLD_DATA` names, then the user's cache."""

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from neuromanifold.runtime.packages import need

ENVIRONMENT_VARIABLE = "NEUROMANIFOLD_DATA"


def cache() -> Path:
    """`$XDG_CACHE_HOME/neuromanifold`, by default `~/.cache/neuromanifold`: what was fetched is
    kept here.
    """
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "neuromanifold"


def folders() -> tuple[Path, ...]:
    """The folders that are searched, first first."""
    named = os.environ.get(ENVIRONMENT_VARIABLE)
    if not named:
        return (cache(),)
    folder = Path(named).expanduser()
    if not folder.is_dir():
        raise FileNotFoundError(
            f"`{ENVIRONMENT_VARIABLE}` is {named!r}, which is not a folder; create it, or unset "
            "the variable."
        )
    return (folder, cache())


def from_openml(name: str, remedy: str, fetch: Callable[[Callable[..., Any]], Any]) -> Any:
    """`fetch(fetch_openml)`, with every way of having no network told in one sentence that ends
    in the remedy.
    """
    from http.client import HTTPException

    try:
        fetch_openml = need("sklearn.datasets").fetch_openml
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # scikit-learn announces each retry
            return fetch(fetch_openml)
    except (OSError, HTTPException, ImportError, KeyError) as error:
        reason = str(error).strip() or type(error).__name__
        raise FileNotFoundError(
            f"data set {name!r} is not on this machine and OpenML does not give it ({reason}); "
            f"{remedy}."
        ) from None


def download(name: str, address: str, largest: int, remedy: str) -> bytes:
    """What is at the address, at most `largest` bytes of it; every way of not getting it is told
    in one sentence.
    """
    from http.client import HTTPException
    from urllib.request import urlopen

    try:
        with urlopen(address, timeout=30) as answer:
            return answer.read(largest)
    except (OSError, HTTPException) as error:
        reason = str(error).strip() or type(error).__name__
        raise FileNotFoundError(
            f"data set {name!r} is not on this machine and {address} does not give it ({reason}); "
            f"{remedy}."
        ) from None
