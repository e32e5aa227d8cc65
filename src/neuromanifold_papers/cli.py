"""The commands of the papers, joined to the command line of the library: `reproduce`, `verify`."""

import functools
import importlib
from pathlib import Path
from typing import Annotated, Any

import typer

STUDIES = ("complexity", "invariant", "teleport", "riemann", "bottleneck", "beyond")


def join(app: typer.Typer) -> None:
    """Add the commands of the papers to `app`."""
    app.command()(reproduce)
    app.command("verify")(verify_statements)


def reproduce(
    key: Annotated[
        str, typer.Argument(help=f"The paper, or beyond (our own studies): {', '.join(STUDIES)}.")
    ],
    figure: Annotated[
        str | None, typer.Option(help="Only this figure (a number) or part (a name).")
    ] = None,
    scale: Annotated[
        str, typer.Option(help="small (minutes on two cores), or paper (the paper's own sizes).")
    ] = "small",
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the results; when absent results/KEY, or results/KEY-paper at that scale."
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(help="How many processes compute the study (a local Dask cluster).", min=1),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(
            help="Compute on the Dask cluster at this address, tcp://…; all machines must share OUT."
        ),
    ] = None,
) -> None:
    """Make a paper's figures and tables again, from scratch: PNG, SVG and NetCDF, and summary.json.

    Results that OUT already holds are not computed again; those of another scale are refused.
    """
    from neuromanifold_papers.interrupts import answering
    from neuromanifold_papers.terminal import print_claims

    if key not in STUDIES:
        raise ValueError(f"`KEY` is {key!r}; the studies are {', '.join(STUDIES)}.")
    if scale not in ("small", "paper"):
        raise ValueError(f"`--scale` is {scale!r}; pass small or paper.")
    folder = out or Path("results") / (key if scale == "small" else f"{key}-{scale}")
    study = importlib.import_module(f"neuromanifold_papers.{key}.study")
    options: Any = {
        "figure": _number_or_name(figure),
        "scale": scale,
        "workers": workers,
        "scheduler": scheduler,
    }
    with answering(f"what was finished is in {folder}; the same command goes on from there."):
        print_claims(study.reproduce(folder, progress=True, **options))
    for path in sorted(path for path in folder.iterdir() if path.is_file()):
        typer.echo(f"wrote {path}")


def _number_or_name(figure: str | None) -> int | str | None:
    return int(figure) if figure is not None and figure.isdigit() else figure


def verify_statements(
    key: Annotated[str | None, typer.Argument(help="The paper; all of them when absent.")] = None,
    ids: Annotated[
        list[str] | None,
        typer.Argument(help="Statements, as the papers number them: P9, 'Thm 3'."),
    ] = None,
    cases: Annotated[
        int | None,
        typer.Option(help="Random cases for each statement, beside the enumerated ones.", min=0),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random cases.", min=0, max=2**32 - 1)] = 0,
    studies: Annotated[
        bool,
        typer.Option(
            "--studies",
            help="Run the studies again at small scale, instead of reading the recorded runs.",
        ),
    ] = False,
    json: Annotated[
        Path | None, typer.Option(help="Write the evidence here as JSON, statement by statement.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write the list of all verdicts here, as one HTML page.")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on from the file of --json: keep what it holds, and examine what it lacks for "
            "these cases and seed.",
        ),
    ] = False,
    record: Annotated[
        bool,
        typer.Option(
            "--record", help="Record these verdicts as the expected ones, counterexamples included."
        ),
    ] = False,
    errata: Annotated[
        Path | None, typer.Option(help="Write the Errata page here, from the recorded verdicts.")
    ] = None,
    coverage: Annotated[
        bool,
        typer.Option(
            "--coverage",
            help="Only count the sentences of each paper, its assertions, and how many of these are "
            "executed, undecidable, or not executed yet.",
        ),
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(
            help="How many processes examine; when absent one for each core, at most 4.", min=1
        ),
    ] = None,
) -> None:
    """Execute the papers' theorems, and print verdict, cases and worst margin of each.

    The exit status is 1 when a verdict is not the recorded one.
    """
    import jax

    import neuromanifold_papers as papers
    from neuromanifold.runtime.files import check_output
    from neuromanifold_papers.ledger_page import write_ledger
    from neuromanifold_papers.terminal import examined, print_facts

    if coverage:
        for paper in papers.PAPERS if key is None else (key.lower(),):
            typer.echo(f"{paper}: {papers.coverage(paper)}")
        return
    if resume and json is None:
        raise ValueError("`--resume` needs `--json FILE`: the file to continue.")
    for path, name in ((json, "--json"), (html, "--html"), (errata, "--errata")):
        if path is not None:
            check_output(path, name)
    if record:
        papers.source_folder()
    chosen = papers.select(key, tuple(ids or ()))
    if studies:
        chosen = tuple(papers.reading(chosen, _small_summary()))
    held = papers.read_evidence(json) if resume and json is not None and json.exists() else []
    recorded = papers.recorded_verdicts()
    asked = papers.default_workers(len(chosen)) if workers is None else workers
    evidence = papers.verify(
        chosen, draws=cases, key=jax.random.key(seed), finished=held, workers=asked
    )
    found, expected = examined(evidence, len(chosen), recorded, studies, json, held)
    if ids:
        print_facts(found, expected)
    if record:
        for path in papers.write_verdicts(
            found, papers.source_folder(), keep=recorded, small=studies
        ):
            typer.echo(f"wrote {path}")
        recorded = papers.recorded_verdicts()
        expected = [papers.expected(item, recorded, small=studies) for item in found]
    if html is not None:
        typer.echo(f"wrote {write_ledger(found, expected, html)}")
    if errata is not None:
        typer.echo(f"wrote {papers.write_errata(errata)}")
    if any(item.kind != verdict for item, verdict in zip(found, expected, strict=True)):
        raise typer.Exit(1)


def _small_summary() -> Any:
    """The summary of a paper's study at small scale, which is run when it is first asked for."""

    @functools.cache
    def summary(paper: str) -> Path:
        folder = Path("results") / paper
        importlib.import_module(f"neuromanifold_papers.{paper}.study").reproduce(
            folder, scale="small", progress=True
        )
        return folder / "summary.json"

    return summary
