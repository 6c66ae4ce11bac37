"""Asking before something is done that is hard to take back. Does nothing itself."""

from __future__ import annotations

import sys

import click

from hermes.core.errors import OperatorError

__all__ = ["agree"]


def agree(question: str, nothing: str, *, yes: bool, as_json: bool) -> None:
    """See that a person agrees; `yes`: they did on the command line. `nothing` says what was not done else.

    Raises:
        OperatorError: they do not, or nobody can be asked.
    """
    if yes:
        return
    if as_json or sys.stdin is None or not sys.stdin.isatty():
        raise OperatorError(f"{nothing}: nobody can be asked here, and --yes agrees to it.")
    if not click.confirm(question, err=True):
        raise OperatorError(f"{nothing}.")
