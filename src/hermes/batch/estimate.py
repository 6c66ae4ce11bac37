"""What a run will use and cost, before it is started: a range, from the rows and from what such rows usually take, or
from what the run's own ended rollouts took. Asks no model."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

import msgspec

from hermes.batch.progress import usd
from hermes.batch.record import Head
from hermes.core.model import ModelProfile

__all__ = ["Estimate", "estimate", "estimate_lines"]

#: Tokens of system text and tool descriptions in each request, as the toolsets here have them.
OVERHEAD = 2_000
#: Tokens that a turn adds to the conversation: its call and what the tool answers.
GROWTH = 700
#: Turns of a rollout and tokens of a reply: few, usual, many.
TURNS = (1, 4, 10)
REPLY = (150, 300, 800)
#: Ended rollouts from which on they say more than the assumptions.
ENOUGH = 5


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """Of `rollouts` to be run: (least, usual, most) tokens, both ways together, and US dollars, None where the price is
    unknown. `measured` is the number of ended rollouts of this run that they are taken from, 0 for none."""

    rollouts: int
    tokens: tuple[int, int, int]
    cost_usd: tuple[float, float, float] | None
    measured: int = 0


def estimate(
    prompt_bytes: int, rollouts: int, max_turns: int, profile: ModelProfile | None, ended: Iterable[Head] = ()
) -> Estimate:
    """Estimate `rollouts` rollouts whose prompts have `prompt_bytes` in all."""
    used, costs = array("Q"), array("d")
    for head in ended:
        if head.tokens:
            used.append(head.tokens)
            if head.cost_usd is not None:
                costs.append(head.cost_usd)
    if len(used) >= ENOUGH:
        return _measured(used, costs, rollouts)
    prompt = prompt_bytes // 4
    inputs, outputs = [], []
    for turns, reply in zip(TURNS, REPLY, strict=True):
        turns = min(turns, max_turns)
        inputs.append(turns * (OVERHEAD * rollouts + prompt) + rollouts * (GROWTH + reply) * turns * (turns - 1) // 2)
        outputs.append(turns * reply * rollouts)
    cost = None
    if profile is not None and profile.price_input is not None and profile.price_output is not None:
        in_price, out_price = profile.price_input, profile.price_output
        cost = tuple((i * in_price + o * out_price) / 1e6 for i, o in zip(inputs, outputs, strict=True))
    return Estimate(
        rollouts=rollouts,
        tokens=(inputs[0] + outputs[0], inputs[1] + outputs[1], inputs[2] + outputs[2]),
        cost_usd=(cost[0], cost[1], cost[2]) if cost is not None else None,
    )


def _measured(tokens: Sequence[int], costs: Sequence[float], rollouts: int) -> Estimate:
    low, mean, high = _spread(sorted(tokens), rollouts)
    return Estimate(
        rollouts=rollouts,
        tokens=(int(low), int(mean), int(high)),
        cost_usd=_spread(sorted(costs), rollouts) if costs else None,
        measured=len(tokens),
    )


def _spread(values: Sequence[float], times: int) -> tuple[float, float, float]:
    """The tenth, the mean, and the nine tenths of sorted values, each so many times."""
    last = len(values) - 1
    return values[last // 10] * times, sum(values) / len(values) * times, values[last * 9 // 10] * times


def estimate_lines(found: Estimate, model: str) -> list[str]:
    """Say an estimate to a person."""
    least, usually, most = (f"{float(f'{count:.3g}'):,.0f}" for count in found.tokens)  # more digits would pretend
    lines = [f"{found.rollouts:,} rollouts to run with {model}; nothing was started, no model was asked"]
    if found.measured:
        basis = f"by the {found.measured} rollouts of this run that have ended"
    else:
        basis = f"for {TURNS[0]}, {TURNS[1]} and {TURNS[2]} turns a row at most, with no help of the prompt cache"
    lines.append(f"tokens: about {usually} ({least} to {most}), {basis}")
    if found.cost_usd is None:
        lines.append(
            f"cost: unknown, since the price of {model} is. Set it in config.yaml under `models:` as "
            f"`{model}: {{price_input: 1.0, price_output: 4.0}}` (US dollars for a million tokens)"
        )
    else:
        low, usual, high = found.cost_usd
        lines.append(f"cost: about {usd(usual)} ({usd(low)} to {usd(high)})")
    return lines
