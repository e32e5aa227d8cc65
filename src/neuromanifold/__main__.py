"""Where the command line starts, as a script and as `python -m neuromanifold`."""

import gc


def main() -> None:
    """Run the command line. What importing JAX made lives as long as the process, so no collection
    needs to walk over it: a tenth of the time to the first line of `--help`.
    """
    gc.freeze()
    from neuromanifold.cli import main

    main()


if __name__ == "__main__":
    main()
