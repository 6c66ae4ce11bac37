"""How the flags of `hermes batch run` are spelled, and those about sampling, routing, verifiers and other machines.

Values are checked where the settings are made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from hermes.batch.settings import EXECUTORS, PROVIDER_SORTS
from hermes.cli.options import Names

__all__ = ["executor_options", "flag", "option", "routing_options", "sampling_options"]

_Command = TypeVar("_Command", bound=Callable[..., Any])


NAMES = Names()


def option(name: str, *short: str, **more: Any) -> Callable[[_Command], _Command]:
    """An option that is spelled with underscores and with dashes, and as `short`."""
    spellings = dict.fromkeys([*short, f"--{name}", f"--{name.replace('_', '-')}"])
    return click.option(*spellings, name, default=None, **more)


def flag(name: str, **more: Any) -> Callable[[_Command], _Command]:
    """A flag that may also be given a value, as `--resume=true`."""
    return option(name, is_flag=False, flag_value="true", type=click.BOOL, metavar="", **more)


def _all(*options: Callable[[_Command], _Command]) -> Callable[[_Command], _Command]:
    def decorated(command: _Command) -> _Command:
        for each in reversed(options):
            command = each(command)
        return command

    return decorated


def sampling_options(command: _Command) -> _Command:
    """Groups of rollouts and how they are sampled and scored."""
    return _all(
        option("rollouts_per_prompt", type=int, metavar="N", help="Rollouts of each row, a group (1)."),
        option("temperature", type=float, metavar="T", help="0 to 2; refused where the endpoint takes none."),
        option("top_p", type=float, metavar="P", help="Above 0, at most 1; refused where the endpoint takes none."),
        option("seed", type=int, metavar="N", help="Of draws of toolsets, and rollout i is asked with N + i."),
        option("verifier_modules", type=NAMES, metavar="NAMES", help="Python modules that rows may name as verifiers."),
    )(command)


def routing_options(command: _Command) -> _Command:
    """Which of the providers behind OpenRouter are asked."""
    sorts = ", ".join(PROVIDER_SORTS)
    return _all(
        option("providers_allowed", type=NAMES, metavar="NAMES", help="Ask only these (openrouter.ai)."),
        option("providers_ignored", type=NAMES, metavar="NAMES", help="Never ask these (openrouter.ai)."),
        option("providers_order", type=NAMES, metavar="NAMES", help="Ask in this order (openrouter.ai)."),
        option("provider_sort", metavar="BY", help=f"Choose by: {sorts} (openrouter.ai)."),
    )(command)


def executor_options(command: _Command) -> _Command:
    """Who carries the rows out."""
    return _all(
        option(
            "processes", type=int, metavar="N", help="Processes that carry the rows out (1); with ray, on each node."
        ),
        option("executor", metavar="NAME", help=f"Where they run: {', '.join(EXECUTORS)} (the nodes of a cluster)."),
        option("ray_address", metavar="HOST:PORT", help="The Ray cluster of --executor=ray (RAY_ADDRESS)."),
    )(command)
