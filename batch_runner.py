"""`python batch_runner.py …` is `hermes batch run …`, also for a Python that has none of the packages.

Started by such a Python it starts again in this checkout's environment, or prints the one command to run. It needs the
standard library only and knows nothing of batches.
"""

import os
import signal
import sys
from pathlib import Path


def main() -> None:
    """Run the batch command; exits 1 when no environment has been made."""
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ours:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # while it is loaded; an exception in a library in C is a crash
    here = Path(__file__).resolve().parent
    python = here / ".venv" / "bin" / "python"
    inside = Path(sys.prefix).resolve() == (here / ".venv").resolve()
    try:
        # edge: this file must start where nothing is installed, or our own sources are all there is.
        import msgspec  # noqa: F401

        # edge: the same
        from hermes.cli.main import main as hermes
    except ModuleNotFoundError as error:
        if python.exists() and not inside:
            os.execv(python, [str(python), str(here / "batch_runner.py"), *sys.argv[1:]])
        sys.exit(f"batch_runner.py: {error}. Run this first: make -C {here} install")
    if ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(hermes(["batch", "run", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
