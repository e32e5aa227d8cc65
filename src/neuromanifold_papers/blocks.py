"""A study is a list of blocks that can be computed alone: here or on a cluster, and never twice."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from neuromanifold.runtime.cluster import cluster, complete
from neuromanifold.runtime.devices import where_it_runs
from neuromanifold.runtime.files import check_folder
from neuromanifold.runtime.progress import count_steps
from neuromanifold.runtime.threads import one_blas_thread
from neuromanifold_papers.output import Claim, read_record, write_record, write_summary

FOLDER = "blocks"
NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Block:
    """`work(out, scale, progress)` leaves figures and data in `out` and returns claims; it runs
    when those of `after` are done.
    """

    name: str
    work: Callable[[Path, str, bool], list[Claim]]
    after: tuple[str, ...] = ()


def run_blocks(
    paper: str,
    blocks: Sequence[Block],
    out: Path,
    scale: str,
    *,
    only: Iterable[str] | None = None,
    progress: bool = False,
    workers: int | None = None,
    scheduler: str | None = None,
) -> dict[str, Any]:
    """Compute the blocks (those of `only`, and what they need) that `out` does not hold, and write
    its `summary.json`.

    The summary has the claims of all blocks that are done, in the order of `blocks`, and is
    rewritten after each.
    """
    out = opened(out, paper, scale)
    todo = [block for block in _needed(blocks, only) if not _is_done(out, block.name)]
    with (
        cluster(workers, scheduler) as client,
        count_steps(progress and client is not None, "blocks", len(todo)) as show,
    ):
        for wave in _waves(todo):
            tasks = {block.name: (block, out, scale, progress and client is None) for block in wave}
            for name, _ in complete(client, finish, tasks):
                show(name)
                _summary(paper, blocks, out, scale)
    return _summary(paper, blocks, out, scale)


def finish(block: Block, out: Path, scale: str, progress: bool) -> None:
    """Compute one block and keep its claims. With one BLAS thread, as on a cluster: so the
    digits are the same there.
    """
    with one_blas_thread():
        claims = block.work(out, scale, progress)
    write_record(
        _file(out, block.name), {"block": block.name, "claims": [asdict(claim) for claim in claims]}
    )


def opened(out: Path, paper: str, scale: str) -> Path:
    """The study's folder; refused where it holds another study, another scale, or another
    version's results.
    """
    out = check_folder(out).resolve()
    mark = {
        "paper": paper,
        "scale": scale,
        "neuromanifold": version("neuromanifold"),
    } | where_it_runs()
    file = out / FOLDER / "study.json"
    found = read_record(file) if file.exists() else None
    if found is None and (out / "summary.json").exists():
        raise ValueError(
            f"`out` {out} holds a summary of an earlier version; name another folder, or delete it."
        )
    differing = [name for name in mark if found is not None and found.get(name) != mark[name]]
    if found is not None and differing:
        told = ", ".join(
            f"{name} {found.get(name)!r} there and {mark[name]!r} here" for name in differing
        )
        raise ValueError(
            f"`out` {out} holds other results ({told}); name another folder, or delete it."
        )
    if found is None:
        write_record(file, mark)
    return out


def _file(out: Path, name: str) -> Path:
    return out / FOLDER / f"{name}.json"


def _claims(out: Path, name: str) -> list[Claim] | None:
    path = _file(out, name)
    return [Claim(**claim) for claim in read_record(path)["claims"]] if path.exists() else None


def _is_done(out: Path, name: str) -> bool:
    """Whether the block is finished; one that lacked its data set is tried again."""
    claims = _claims(out, name)
    return claims is not None and all(claim.borne_out != NOT_MEASURED for claim in claims)


def _needed(blocks: Sequence[Block], only: Iterable[str] | None) -> list[Block]:
    """The named blocks and those that they come after, in order."""
    by_name = {block.name: block for block in blocks}
    wanted, names = set(), list(by_name if only is None else only)
    while names:
        name = names.pop()
        wanted.add(name)
        names += [other for other in by_name[name].after if other not in wanted]
    return [block for block in blocks if block.name in wanted]


def _waves(blocks: Sequence[Block]) -> Iterator[list[Block]]:
    """Blocks that can run side by side, then those that come after them, and so on."""
    left = list(blocks)
    while left:
        names = {block.name for block in left}
        ready = [block for block in left if not names & {*block.after}]
        yield ready
        left = [block for block in left if block not in ready]


def _summary(paper: str, blocks: Sequence[Block], out: Path, scale: str) -> dict[str, Any]:
    claims = [claim for block in blocks for claim in _claims(out, block.name) or ()]
    return write_summary(out, paper, scale, claims)
