"""Entry of the `hermes` command: the quick answers, else the full command line."""

from __future__ import annotations

import sys

from hermes.cli import fast

__all__ = ["main"]


def main(argv: list[str] | None = None) -> int:
    """Run `hermes` with `argv` (without the program's name) and return its exit code."""
    args = list(sys.argv[1:] if argv is None else argv)
    answered = fast.answer(args)
    if answered is not None:
        return answered
    # edge: `--version` and `--help` must not pay for click and the settings
    import gc

    # loading makes many objects and hardly any garbage: looking for some took a fifth of the time to the first picture
    gc.set_threshold(100_000, 20, 100)
    # edge: the same
    from hermes.cli.group import run

    return run(args)


if __name__ == "__main__":
    sys.exit(main())
