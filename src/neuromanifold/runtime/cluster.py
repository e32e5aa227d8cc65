"""Independent tasks on a Dask cluster: a local one of so many processes, or the one at an
address.
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

RETRIES = 3
_MOST_WORKERS = 1024
"""More processes than one machine can be asked for."""


@contextmanager
def cluster(workers: int | None = None, scheduler: str | None = None) -> Generator[Any]:
    """A Dask client; `None` where neither workers nor a scheduler are asked for, and tasks then
    run in this process.
    """
    if workers is None and scheduler is None:
        yield None
        return
    if workers is not None and not 1 <= workers <= _MOST_WORKERS:
        raise ValueError(
            f"`workers` is {workers}; pass a number of processes, from 1 to {_MOST_WORKERS}."
        )
    try:
        from dask.distributed import Client, LocalCluster
    except ImportError:
        raise ValueError(
            "`workers` and `scheduler` need Dask, which is not installed; install it: pip install "
            "'neuromanifold[cluster]'."
        ) from None
    if scheduler is None:
        made = LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            memory_limit=0,
            dashboard_address="",
            silence_logs=50,
        )
        with made, Client(made) as client:
            yield client
        return
    try:
        client = Client(scheduler, timeout="10s")
    except (OSError, ValueError) as error:
        raise ValueError(
            f"`scheduler` is {scheduler!r}, which does not answer ({error}); pass the address "
            "that `dask scheduler` prints."
        ) from None
    with client:
        yield client


def complete(
    client: Any, work: Callable[..., Any], tasks: Mapping[str, tuple[Any, ...]]
) -> Iterator[tuple[str, Any]]:
    """(name, `work(*arguments)`) of each task as it ends. On a cluster, a task whose worker dies
    is done again elsewhere.
    """
    if client is None:
        yield from ((name, work(*arguments)) for name, arguments in tasks.items())
        return
    from dask.distributed import as_completed

    names = {
        client.submit(work, *arguments, pure=False, retries=RETRIES): name
        for name, arguments in tasks.items()
    }
    try:
        for future in as_completed(list(names)):
            yield names[future], future.result()
    finally:
        client.cancel(list(names))
