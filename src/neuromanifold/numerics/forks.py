"""Processes made by `fork` while JAX is in use hang in their first compilation; here they get a sentence instead."""

import os
import threading

import jax

SECONDS = 20.0
_forked = False


def _note() -> None:
    global _forked
    _forked = True


if "register_at_fork" in dir(os):
    os.register_at_fork(after_in_child=_note)


def check_fork() -> None:
    """Nothing, except once after a fork: compile something small, and refuse to go on where that does not end."""
    global _forked
    if not _forked:
        return
    ended = threading.Event()
    threading.Thread(target=lambda: (_compile(), ended.set()), daemon=True).start()
    if not ended.wait(SECONDS):
        raise RuntimeError(
            "this process was forked from one in which JAX was already in use, where its computations never end; "
            'start processes by `multiprocessing.get_context("spawn")`, or fork before the first computation.'
        )
    _forked = False


def _compile() -> None:
    jax.block_until_ready(jax.jit(lambda a: a + 1.0)(1.0))
