"""Entry of the `hermes` command: the quick answers, else the full command line."""

from __future__ import annotations

import os
import sys

from hermes.cli import fast

__all__ = ["main"]


def main(argv: list[str] | None = None) -> int:
    """Run `hermes` with `argv` (without the program's name) and return its exit code."""
    _open_closed()
    _spell_out()
    try:
        return _main(list(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt:  # while it is loaded
        return 130


def _open_closed() -> None:
    """Open what is closed of the three standard streams (`hermes … >&-`) on nothing: the next file that is opened, the
    journal say, would get its number, and what a command prints would go there."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)
            if descriptor == number:
                os.set_inheritable(descriptor, True)
            setattr(sys, name, open(descriptor, "w" if number else "r", encoding="utf-8", closefd=False))


def _spell_out() -> None:
    """Where the output takes only some characters (a locale such as ru_RU.KOI8-R), write the others as escapes: an
    answer is paid for, and must not be lost over one of them."""
    if getattr(sys.stdout, "errors", "") == "strict" and (sys.stdout.encoding or "").lower() not in ("utf-8", "utf8"):
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def _main(args: list[str]) -> int:
    answered = fast.answer(args)
    if answered is not None:
        return answered
    # edge: `--version` and `--help` must not pay for click and the settings
    import gc
    import signal
    import threading

    # Ctrl+C while everything is loaded simply ends the process: an exception in the middle of it shows a traceback, and
    # in the middle of a library in C it is a crash
    first = threading.current_thread() is threading.main_thread()
    ours = first and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ours:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # loading makes many objects and hardly any garbage: looking for some took a fifth of the time to the first picture
    gc.set_threshold(100_000, 20, 100)
    # edge: the same
    from hermes.cli.group import run

    if ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return run(args)


if __name__ == "__main__":
    sys.exit(main())
