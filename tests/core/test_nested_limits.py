"""Budgets as a tree: what is set aside, settled, warned of and refused."""

from __future__ import annotations

from dataclasses import dataclass, field

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.core.allowance import LEAST_OUTPUT, RESERVED_OUTPUT, Allowance
from hermes.core.errors import LimitReached
from hermes.core.limits import Budget, Limits
from hermes.core.messages import Usage
from hermes.core.model import ModelProfile
from hermes.testing.clock import VirtualClock

PRICED = ModelProfile(window=1_000_000, max_output=100_000, price_input=1.0, price_output=4.0)
FREE = ModelProfile(window=1_000_000, max_output=100_000)


def tree(limits: Limits, children: int, own: Limits | None = None) -> tuple[Budget, list[Budget]]:
    session = Budget(limits, "session")
    main = Budget(Limits(), "main", session)
    return session, [Budget(own or Limits(), f"c{n}", main) for n in range(children)]


def test_a_call_is_charged_to_every_level_and_settled_by_what_was_used() -> None:
    session, (child,) = tree(Limits(tokens=1_000), 1)
    reservation = child.reserve(300, 0.5)
    assert (session.tokens, session.held_tokens, session.cost) == (300, 300, 0.5)
    reservation.settle(Usage(input=100, output=20, cost_usd=0.125))
    reservation.settle(Usage(input=100, output=20, cost_usd=0.125))
    for budget in child.chain():
        assert (budget.tokens, budget.held_tokens, budget.requests) == (120, 0, 1)
        assert budget.cost == pytest.approx(0.125)
        assert budget.held_cost == pytest.approx(0)


@pytest.mark.fault("B021")
def test_a_limit_on_requests_holds_for_the_whole_tree() -> None:
    _, (one, two) = tree(Limits(requests=5), 2)
    for budget in (one, two, one, two, one):
        budget.reserve(10).settle(Usage(input=10))
    with pytest.raises(LimitReached, match="requests limit of 5 reached") as caught:
        two.reserve(10)
    assert caught.value.kind == "requests"


@pytest.mark.fault("B022")
@given(st.lists(st.integers(1, 4), min_size=1, max_size=20), st.integers(0, 30))
def test_tool_calls_of_siblings_never_pass_a_shared_limit(wanted: list[int], limit: int) -> None:
    session, children = tree(Limits(calls=limit), len(wanted))
    granted = [child.take_calls(count) for child, count in zip(children, wanted, strict=True)]
    assert sum(granted) == session.calls == min(limit, sum(wanted))


def test_who_spends_is_warned_once_and_the_first_one_is_told_so() -> None:
    heard: list[tuple[str, str, bool]] = []
    session, children = tree(Limits(tokens=1_000), 2)
    for child in children:
        child.on_warning = lambda kind, used, limit, scope, first, who=child.scope: heard.append((who, scope, first))
    children[0].reserve(790).settle(Usage(input=790))
    children[0].settled()
    assert heard == []
    for child in (children[0], children[1], children[0], children[1]):
        child.reserve(20).settle(Usage(input=20))
        child.settled()
    assert heard == [("c0", "session", True), ("c1", "session", False)]
    session.change(Limits(tokens=1_050))
    children[1].settled()
    assert heard[2:] == [("c1", "session", True)]


def test_what_is_only_held_warns_nobody() -> None:
    heard: list[str] = []
    session, children = tree(Limits(tokens=1_000), 2)
    children[1].on_warning = lambda kind, used, limit, scope, first: heard.append(scope)
    held = children[0].reserve(900)
    children[1].reserve(10).settle(Usage(input=10))
    children[1].settled()
    assert heard == []
    held.settle(Usage())
    assert session.tokens == 10


@pytest.mark.anyio
async def test_without_limits_nothing_is_capped(virtual_clock: VirtualClock) -> None:
    _, (child,) = tree(Limits(), 1)
    grant = await Allowance(child, PRICED).grant(500, None)
    assert grant.cap is None
    assert grant.most is None
    assert child.tokens == 500 + RESERVED_OUTPUT


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("limits", "asked", "cap"),
    [
        (Limits(tokens=100_000), None, RESERVED_OUTPUT),
        (Limits(tokens=100_000), 50, 50),
        (Limits(tokens=2_000), None, 1_500),
        (Limits(cost_usd=1.0), None, RESERVED_OUTPUT),
        (Limits(cost_usd=0.0045), None, 1_000),  # 500 tokens in for $0.0005, then $4 a million out
        (Limits(cost_usd=0.0045, tokens=900), None, 400),
    ],
)
async def test_the_reply_may_have_what_is_left(
    limits: Limits, asked: int | None, cap: int, virtual_clock: VirtualClock
) -> None:
    session, (child,) = tree(limits, 1)
    grant = await Allowance(child, PRICED).grant(500, asked)
    assert grant.cap == cap
    assert session.held_tokens == 500 + cap
    assert grant.most == Usage(input=500, output=cap, estimated=True)


@pytest.mark.anyio
async def test_a_request_that_does_not_fit_is_refused(virtual_clock: VirtualClock) -> None:
    session, (child,) = tree(Limits(cost_usd=0.0004), 1)
    with pytest.raises(LimitReached, match=r"cost limit of \$0.0004 reached \(session\)"):
        await Allowance(child, PRICED).grant(500, None)
    assert session.requests == 0


@pytest.mark.anyio
async def test_an_unknown_price_counts_nothing_but_what_the_provider_names(virtual_clock: VirtualClock) -> None:
    session, (child,) = tree(Limits(cost_usd=0.01), 1)
    allowance = Allowance(child, FREE)
    (await allowance.grant(500_000, None)).reservation.settle(Usage(input=500_000))
    (await allowance.grant(500, None)).reservation.settle(Usage(input=500, cost_usd=0.02))
    assert session.cost == pytest.approx(0.02)
    with pytest.raises(LimitReached):
        await allowance.grant(500, None)


@pytest.mark.anyio
async def test_a_call_waits_for_what_siblings_hold_and_is_not_refused(virtual_clock: VirtualClock) -> None:
    session, children = tree(Limits(tokens=6_000), 2)
    held = (await Allowance(children[0], FREE).grant(1_000, None)).reservation
    assert session.tokens == 5_096
    got: list[int | None] = []

    async def ask() -> None:
        got.append((await Allowance(children[1], FREE).grant(1_000, None)).cap)

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        await anyio.sleep(1)
        assert got == []
        held.settle(Usage(input=1_000, output=50))
    assert got == [3_950]


@pytest.mark.anyio
async def test_a_call_that_waits_is_refused_once_the_others_really_spent(virtual_clock: VirtualClock) -> None:
    _, children = tree(Limits(tokens=6_000), 2)
    held = (await Allowance(children[0], FREE).grant(1_000, None)).reservation
    refused: list[str] = []

    async def ask() -> None:
        try:
            await Allowance(children[1], FREE).grant(1_000, None)
        except LimitReached as limit:
            refused.append(limit.scope)

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        await anyio.sleep(1)
        held.settle(Usage(input=1_000, output=4_096))
    assert refused == ["session"]


@pytest.mark.anyio
async def test_a_cut_reply_may_be_longer_the_next_time(virtual_clock: VirtualClock) -> None:
    _, (child,) = tree(Limits(tokens=1_000_000), 1)
    allowance = Allowance(child, PRICED)
    caps = []
    for _ in range(3):
        grant = await allowance.grant(10, None)
        grant.reservation.settle(Usage(input=10))
        caps.append(grant.cap)
        allowance.widen()
    assert caps == [RESERVED_OUTPUT, 2 * RESERVED_OUTPUT, 4 * RESERVED_OUTPUT]


def test_the_last_call_that_leaves_room_for_a_report_is_known() -> None:
    _, (child,) = tree(Limits(tokens=20_000), 1)
    allowance = Allowance(child, FREE)
    assert allowance.nearly_out(3_000, None) is None
    child.reserve(10_000).settle(Usage(input=10_000))
    nearly = allowance.nearly_out(3_000, None)
    assert nearly is not None
    assert (nearly.kind, nearly.scope) == ("tokens", "session")
    assert allowance.nearly_out(11_000, None) is None  # not even the report fits any more
    assert allowance.fits(3_000)
    assert not allowance.fits(11_000)


@dataclass
class Sibling:
    """One task of the simulation: sizes of its calls and the share of each that is really used."""

    inputs: list[int]
    shares: list[float]
    refused: bool = False
    used: list[Usage] = field(default_factory=list)


siblings = st.lists(
    st.builds(
        Sibling,
        st.lists(st.integers(1, 4_000), min_size=1, max_size=6),
        st.lists(st.floats(0, 1), min_size=6, max_size=6),
    ),
    min_size=1,
    max_size=8,
)


async def _race(tasks: list[Sibling], limits: Limits, own: Limits, profile: ModelProfile) -> Budget:
    session, budgets = tree(limits, len(tasks), own)

    async def work(task: Sibling, budget: Budget, number: int) -> None:
        allowance = Allowance(budget, profile)
        for size, share in zip(task.inputs, task.shares, strict=False):
            try:
                grant = await allowance.grant(size, None)
            except LimitReached:
                task.refused = True
                return
            assert grant.cap is not None
            await anyio.sleep(0.1 + number * share)
            usage = allowance.priced(Usage(input=size, output=int(grant.cap * share)))
            task.used.append(usage)
            grant.reservation.settle(usage)

    async with anyio.create_task_group() as group:
        for number, (task, budget) in enumerate(zip(tasks, budgets, strict=True)):
            group.start_soon(work, task, budget, number)
    return session


@pytest.mark.fault("B022")
@given(siblings, st.integers(1, 40_000), st.integers(1, 20_000), st.booleans())
def test_siblings_never_overshoot_together(tasks: list[Sibling], limit: int, own: int, money: bool) -> None:
    clock = VirtualClock()
    shared = Limits(cost_usd=limit * 2e-6) if money else Limits(tokens=limit)
    alone = Limits(cost_usd=own * 2e-6) if money else Limits(tokens=own)
    for task in tasks:
        task.refused, task.used = False, []
    session = anyio.run(_race, tasks, shared, alone, PRICED, backend_options={"loop_factory": clock.loop})
    used = [usage for task in tasks for usage in task.used]
    if money:
        assert sum(usage.cost_usd or 0.0 for usage in used) <= limit * 2e-6 + 1e-9
        assert all(sum(usage.cost_usd or 0.0 for usage in task.used) <= own * 2e-6 + 1e-9 for task in tasks)
    else:
        assert sum(usage.total for usage in used) <= limit
        assert all(sum(usage.total for usage in task.used) <= own for task in tasks)
    # Nothing is lost and nothing stays held: the counters are the sums of what was used.
    assert session.tokens == sum(usage.total for usage in used)
    assert session.held_tokens == 0
    assert session.held_cost == pytest.approx(0, abs=1e-12)
    assert session.requests == len(used)
    assert all(task.refused or len(task.used) == len(task.inputs) for task in tasks)


def test_a_short_reply_is_no_reason_to_wait_for_nobody() -> None:
    """A cap below the least useful one is taken where nobody holds anything that could come free."""
    clock = VirtualClock()

    async def ask() -> int | None:
        _, (child,) = tree(Limits(tokens=1_010), 1)
        return (await Allowance(child, FREE).grant(1_000, None)).cap

    assert anyio.run(ask, backend_options={"loop_factory": clock.loop}) == 10 < LEAST_OUTPUT
