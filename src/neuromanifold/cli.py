"""The command line: thin, every command calls one function of the library and says what it
wrote.
"""

import contextlib
import importlib.metadata
import os
import shlex
import signal
import sys
import threading
import tomllib
import warnings
import webbrowser
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core


def _interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


class _Group(typer.core.TyperGroup):
    """The commands; Ctrl-C says what is on disk, and so does SIGTERM (Slurm, `timeout`)."""

    def invoke(self, ctx: Any) -> Any:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, _interrupt)
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            print(
                f"neuromanifold: interrupted; {str(stop) or 'what was finished is on disk.'}",
                file=sys.stderr,
                flush=True,
            )
            sys.stdout.flush()
            os._exit(130)  # what still computes in another thread must not delay the answer


_WHAT = (
    "See how many parameters of a network matter on your data, and shrink it without changing what "
    "it computes. Every answer carries its proof or its evidence."
)
app = typer.Typer(
    cls=_Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help=_WHAT,
)
data_app = typer.Typer(no_args_is_help=True, help="List the data sets, or download one.")
app.add_typer(data_app, name="data")
ActivationName = Annotated[
    str | None, typer.Option(help="The network's activation, where the file does not say.")
]
NormPlace = Annotated[
    str | None,
    typer.Option(
        help="Whether batch normalisation comes before or after the activation: before, after."
    ),
]
Factory = Annotated[
    str | None,
    typer.Option(
        help="package.module:function that builds the PyTorch network whose weights MODEL holds."
    ),
]
OpenPage = Annotated[bool, typer.Option("--open", help="Open the page in the browser.")]

_JOINED = "neuromanifold.commands"


def _version(asked: bool) -> bool:
    if asked:
        metadata = importlib.metadata
        typer.echo(
            f"neuromanifold {metadata.version('neuromanifold')} (jax {metadata.version('jax')})"
        )
        raise typer.Exit
    return asked


@app.callback(help=_WHAT)
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Options of the command line itself."""


def main() -> None:
    """Run the command line; bad input ends in one sentence and exit status 2."""
    try:
        app()
    except (ValueError, TypeError, OSError, ArithmeticError, ImportError) as error:
        notes = [note for note in getattr(error, "__notes__", ()) if note.startswith("`")]
        print(f"neuromanifold: {error}", *notes, sep="\n", file=sys.stderr)
        raise SystemExit(2) from None


@app.command("inspect")
def inspect_network(
    model: Annotated[
        str | None,
        typer.Argument(
            help="The network: .safetensors, .npz, .pt, .pth or .pt2; without it, a small example "
            "is trained."
        ),
    ] = None,
    data: Annotated[
        str | None, typer.Argument(help="Samples: .npy, .npz or .csv, or the name of a data set.")
    ] = None,
    activation: ActivationName = None,
    batchnorm: NormPlace = None,
    factory: Factory = None,
    targets: Annotated[
        str | None,
        typer.Option(
            help="What the outputs should be, one row or one class for each sample: .npy or .csv."
        ),
    ] = None,
    loss: Annotated[
        str | None,
        typer.Option(
            help="The loss for alignment and learning rate, which need --targets; mse when absent."
        ),
    ] = None,
    checkpoints: Annotated[
        Path | None,
        typer.Option(
            help="A folder with weights of the same network over training: epoch-1.pt, epoch-2.pt, …"
        ),
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(
            help="How many samples to look at; when absent, as many as give 5,000 rows of the "
            "Jacobian.",
            min=1,
        ),
    ] = None,
    outputs: Annotated[
        str | None,
        typer.Option(
            help="The outputs that rank and kernel are about: how many, drawn at random, or which, as "
            "an index such as '-1, :8' (eight logits of the last token). When absent all of them, or 8 "
            "if there are more than 5,000."
        ),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(help="How much memory each section may take, for example 512M or 4G."),
    ] = None,
    patience: Annotated[
        float,
        typer.Option(
            help="Skip sections that are estimated to take more seconds than this.", min=0
        ),
    ] = 600,
    out: Annotated[Path, typer.Option(help="Folder for the report.")] = Path("report"),
    browse: OpenPage = False,
    form: Annotated[
        str, typer.Option("--format", help="html (a page with figures) or md (the table).")
    ] = "html",
    json: Annotated[
        Path | None, typer.Option(help="Write the numbers here as JSON; - is standard output.")
    ] = None,
    epochs: Annotated[int, typer.Option(help="Epochs of training for the example.", min=1)] = 500,
    seed: Annotated[int, typer.Option(help="Seed of the example.")] = 0,
) -> None:
    """Inspect a network on data: print a table, and write a page with pictures into OUT.

    Ctrl-C and SIGTERM keep what is finished.
    """
    from neuromanifold.inspection import inspect, opening
    from neuromanifold.inspection.checkpoints import number_files
    from neuromanifold.report import (
        numbers,
        print_inspection,
        write,
        write_markdown,
        write_timeline,
    )
    from neuromanifold.runtime.files import check_folder

    check_folder(out, "--out")
    with numbers(json, model, data, targets) as write_numbers:
        if form not in ("html", "md"):
            raise ValueError(f"`--format` is {form!r}; pass html or md.")
        if browse and form != "html":
            raise ValueError(
                "`--open` shows the page, and `--format` is md; leave one of them out."
            )
        objective = opening.loss_named(loss or "mse")
        reading = {"activation": activation, "batchnorm": batchnorm, "factory": factory}
        if checkpoints is not None:
            number_files(checkpoints)
        if model is None:
            net, params, x, y = opening.example(epochs, seed)
        else:
            with _notes():
                net, params, x, y = opening.open_files(model, data, targets, reading)
        opening.check_loss_fits(loss, y)
        options: Any = {
            "loss": objective,
            "samples": samples,
            "memory": memory,
            "patience": patience,
        }
        chosen = opening.index_of(outputs)
        with _notes():
            inspection = inspect(net, params, x, y, outputs=chosen, **options)
        print_inspection(inspection)
        timeline = (
            None if checkpoints is None else _over_training(checkpoints, x, y, reading, options)
        )
        write_numbers(inspection)
        for path in () if timeline is None else write_timeline(timeline, out):
            typer.echo(f"wrote {path}")
        page = (
            write(inspection, out, timeline=timeline, command=_command())
            if form == "html"
            else write_markdown(inspection, out)
        )
        typer.echo(f"wrote {page}")
        if browse:
            webbrowser.open(page.resolve().as_uri())
        if inspection.interrupted:
            raise KeyboardInterrupt("what was finished is above and in the report.")


def _command() -> str:
    return shlex.join(["neuromanifold", *sys.argv[1:]])


def _over_training(
    folder: Path, x: Any, y: Any, reading: dict[str, Any], options: dict[str, Any]
) -> Any:
    from neuromanifold.inspection import checkpoints, opening
    from neuromanifold.models import load

    def read(path: Path) -> tuple[Any, Any]:
        return load(path, example=opening.example_of(reading, x), **reading)

    with _notes():
        return checkpoints(folder, x, y, read=read, begin=_announce, **options)


def _announce(path: Path, index: int, count: int) -> None:
    typer.echo(f"{index + 1} of {count}: {path.name}", err=True)


@app.command("reduce")
def reduce_network(
    model: Annotated[
        str,
        typer.Argument(
            help="The network: stacked linear layers (.safetensors, .npz, .pt or .pth), a whole "
            "PyTorch program (.pt2), or the weights of any network with --factory."
        ),
    ],
    data: Annotated[
        str | None,
        typer.Argument(
            help="Samples on which the outputs must stay the same; at every input when absent "
            "(stacked linear layers only)."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="File for the smaller network: .safetensors, or a state dict .pt or .pth; for a .pt2 "
            "a .pt2; with --factory any of these. When absent smaller.safetensors, or smaller.pt2 for "
            "a .pt2. Only .safetensors of stacked layers can be written without PyTorch."
        ),
    ] = None,
    activation: ActivationName = None,
    batchnorm: NormPlace = None,
    factory: Factory = None,
) -> None:
    """Write a smaller network that computes the same.

    Neurons or channels that are not needed are removed. Prints what was removed, why, and how far
    the outputs moved.
    """
    from neuromanifold.inspection.reducing import reduce_file

    with _notes():
        said, path = reduce_file(
            model, data, out, factory, activation=activation, batchnorm=batchnorm
        )
    typer.echo(f"{said}\nwrote {path}")


@app.command()
def watch(
    run: Annotated[
        Path, typer.Argument(help="The folder of a running tracker, nm.Tracker(…, folder=…).")
    ],
    port: Annotated[int, typer.Option(help="The port; a free one when 0.")] = 0,
    show: OpenPage = False,
) -> None:
    """Follow a training in the browser, until Ctrl-C. Only this machine can open the page."""
    from neuromanifold.inspection.live import LivePage, history_of_folder

    if not (run / "timeline.csv").is_file():
        raise ValueError(
            f"`run` is {run}, where there is no timeline.csv; pass the folder of "
            "`nm.Tracker(…, folder=…)` after its first record."
        )
    with LivePage(lambda: history_of_folder(run), run.resolve().name, port=port) as page:
        typer.echo(f"{page.url} shows {run}; Ctrl-C ends it")
        if show:
            webbrowser.open(page.url)
        threading.Event().wait()


@contextlib.contextmanager
def _notes() -> Generator[None]:
    """Warnings of the library as plain lines."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for message in dict.fromkeys(str(warning.message) for warning in caught):
        typer.echo(f"note: {message}", err=True)


@app.command()
def bench(
    names: Annotated[
        list[str] | None, typer.Argument(help="Which benchmarks; all of them when absent.")
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Write the results here as JSON.")] = None,
    quick: Annotated[bool, typer.Option(help="Fewer repetitions, smaller sizes.")] = False,
    check: Annotated[
        bool,
        typer.Option("--check", help="Exit with status 1 if a ratio is half of the recorded one."),
    ] = False,
    record: Annotated[
        bool, typer.Option("--record", help="Record these ratios in benchmarks/baseline.json.")
    ] = False,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw here how times grow with samples, width, depth and outputs."),
    ] = None,
    gpu: Annotated[
        bool,
        typer.Option(
            "--gpu", help="Measure the accelerator instead; prints a line of JSON for each."
        ),
    ] = False,
) -> None:
    """Measure speed and memory against other libraries, as ratios in one run."""
    from neuromanifold.runtime.files import check_output

    root = Path(__file__).resolve().parents[2]
    if not (root / "benchmarks" / "__init__.py").is_file():
        raise ValueError(
            f"`bench` needs the source tree: no benchmarks/ beside {root}; clone the project and "
            "run `make bench`."
        )
    sys.path.insert(0, str(root))
    import benchmarks

    for path, name in ((json, "--json"), (plot, "--plot")):
        if path is not None:
            check_output(path, name)
    if gpu:
        from benchmarks.gpu import main as measure_device

        return measure_device(names or [])
    if plot is not None:
        typer.echo(f"wrote {benchmarks.draw_growth(plot, quick=quick)}")
        return
    rows = benchmarks.run(names or (), json_path=json, quick=quick)
    if record:
        typer.echo(f"wrote {benchmarks.baseline.record(rows)}")
    for line in benchmarks.checked(rows) if check else ():
        typer.echo(line, err=True)
    if check and benchmarks.baseline.halved(rows):
        raise typer.Exit(1)


@data_app.command("list")
def list_data() -> None:
    """List the data sets: name, size, licence, source, and whether it is on this machine."""
    from rich.console import Console
    from rich.table import Table

    from neuromanifold.data import catalogue

    rows = catalogue()
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in rows[0]:
        table.add_column(column, no_wrap=column == "name")
    for row in rows:
        table.add_row(*({**row, "present": row["present"] or "no"}).values())
    Console(highlight=False).print(table, markup=False)


@data_app.command("fetch")
def fetch_data(
    name: Annotated[str, typer.Argument(help="The data set's name, as `data list` shows it.")],
) -> None:
    """Download a data set, unless it is on this machine already."""
    from neuromanifold.data import fetch

    typer.echo(f"{name} is at {fetch(name)}")


def _join_commands() -> Iterable[Any]:
    """Commands of other packages: entry points of the group `neuromanifold.commands`, each a
    function of `app`. A source tree that is not installed declares its own in pyproject.toml.
    """
    installed = importlib.metadata.entry_points(group=_JOINED)
    declared = Path(__file__).resolve().parents[2] / "pyproject.toml"
    if installed or not declared.is_file():
        return installed
    groups = tomllib.loads(declared.read_text(encoding="utf-8"))["project"]["entry-points"]
    return [
        importlib.metadata.EntryPoint(name=name, value=value, group=_JOINED)
        for name, value in groups[_JOINED].items()
    ]


for _entry in _join_commands():
    _entry.load()(app)
