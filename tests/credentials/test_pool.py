"""Which of several keys is taken, and how long one rests after what."""

from __future__ import annotations

import pytest

from hermes.credentials.pool import Cooldowns, Credential, CredentialPool


class Wall:
    """A clock set by hand."""

    def __init__(self) -> None:
        self.time = 1_700_000_000.0

    def now(self) -> float:
        return self.time


def credential(name: str, **more: object) -> Credential:
    return Credential(id=name, label=f"key {name}", secret=f"sk-{name}-0123456789", **more)  # type: ignore[arg-type]


def pool_of(*names: str, wall: Wall | None = None, strategy: str = "fill_first", **more: object) -> CredentialPool:
    pool = CredentialPool(now=(wall or Wall()).now, strategies={"p": strategy}, **more)  # type: ignore[arg-type]
    pool.add("p", [credential(name) for name in names])
    return pool


def test_the_first_key_serves_one_conversation_and_children_spread() -> None:
    pool = pool_of("a", "b")
    assert [pool.lease("p").id for _ in range(3)] == ["a", "a", "a"]
    assert [pool.lease("p", f"task-{n}").id for n in range(4)] == ["a", "b", "a", "b"]
    assert pool.leases("p") == {"a": 2, "b": 2}


def test_a_run_keeps_its_key_until_it_is_over() -> None:
    pool = pool_of("a", "b")
    assert {pool.lease("p", "one").id for _ in range(5)} == {"a"}
    assert pool.lease("p", "two").id == "b"
    pool.release("one")
    pool.release("one")
    assert pool.leases("p") == {"a": 0, "b": 1}
    assert pool.lease("p", "three").id == "a"


def test_round_robin_least_used_and_random() -> None:
    turns = pool_of("a", "b", "c", strategy="round_robin")
    assert [turns.lease("p").id for _ in range(4)] == ["a", "b", "c", "a"]
    used = CredentialPool(now=Wall().now, strategies={"p": "least_used"})
    used.add("p", [credential("a", requests=2), credential("b")])
    assert [used.lease("p").id for _ in range(5)] == ["b", "b", "a", "b", "a"]
    drawn = pool_of("a", "b", strategy="random", choose=lambda below: below - 1)
    assert drawn.lease("p").id == "b"


def test_a_key_that_answers_in_a_rest_that_was_guessed_rests_no_more() -> None:
    pool = pool_of("a", "b")
    before = pool.lease("p")
    for lease in (before, pool.lease("p", avoid={"a"})):
        lease.limited(None)
    assert not before.succeeded()  # it was sent before the refusal: that says nothing of the time since
    assert pool.status("p")[0].reason == "rate_limit"
    probe = pool.lease("p")
    assert (probe.id, probe.wait) == ("a", 0.0) and probe.succeeded()
    assert [key.reason for key in pool.status("p")] == ["", "rate_limit"] and not probe.succeeded()


def test_a_word_that_is_no_strategy_means_the_first_key() -> None:
    assert pool_of("a", "b", strategy="quota_aware").lease("p").id == "a"


@pytest.mark.fault("B063")
def test_a_short_burst_does_not_take_the_pool_out_for_long() -> None:
    wall = Wall()
    pool = pool_of("a", "b", "c", wall=wall, cooldowns=Cooldowns(rate_limit=5.0))
    for name in ("a", "b", "c"):
        lease = pool.lease("p")
        assert lease.id == name
        assert lease.limited(None).seconds == 5.0
    # all rest, nobody named a time: the least bad one is tried and not waited for
    least = pool.lease("p")
    assert (least.id, least.wait) == ("a", 0.0)
    wall.time += 6.0
    assert pool.lease("p").id == "a" and pool.free("p")


def test_a_rest_without_a_time_doubles_up_to_ten_minutes_and_begins_anew_after_success() -> None:
    wall = Wall()
    pool = pool_of("a", wall=wall)
    seconds = []
    for _ in range(8):
        lease = pool.lease("p")
        seconds.append(lease.limited(None).seconds)
        wall.time += seconds[-1]
    assert seconds == [15.0, 30.0, 60.0, 120.0, 240.0, 480.0, 600.0, 600.0]
    pool.lease("p").succeeded()
    assert pool.lease("p").limited(None).seconds == 15.0


def test_one_episode_of_many_requests_counts_once() -> None:
    pool = pool_of("a", "b")
    leases = [pool.lease("p", "one") for _ in range(20)]
    rests = [lease.limited(None) for lease in leases]
    assert [rest.fresh for rest in rests] == [True] + [False] * 19
    assert {rest.seconds for rest in rests} == {15.0}


def test_a_named_time_holds_and_is_waited_for_where_every_key_rests() -> None:
    wall = Wall()
    pool = pool_of("a", "b", wall=wall)
    pool.lease("p").limited(60.0)
    pool.lease("p").limited(90.0)
    lease = pool.lease("p")
    assert (lease.id, lease.wait) == ("a", 60.0)
    wall.time += 60.0
    assert pool.lease("p").wait == 0.0


def test_a_short_pause_keeps_the_key_and_a_long_one_moves_the_run() -> None:
    pool = pool_of("a", "b")
    pool.lease("p", "run").limited(2.0)
    assert (pool.lease("p", "run").id, pool.lease("p", "run").wait) == ("a", pytest.approx(2.0))
    pool.lease("p", "run").limited(60.0)
    assert (pool.lease("p", "run").id, pool.lease("p", "run").wait) == ("b", 0.0)


def test_the_mark_goes_to_the_key_that_made_the_request_and_its_twins() -> None:
    pool = CredentialPool(now=Wall().now)
    twin = Credential(id="twin", label="twin", secret=credential("a").secret)
    pool.add("p", [credential("a"), credential("b"), twin])
    early = pool.lease("p", "run")
    pool.lease("p", "other").limited(60.0)  # somebody else's key rests meanwhile
    early.denied()
    assert {each.id: each.reason for each in pool.status("p")} == {"a": "auth", "b": "rate_limit", "twin": "auth"}


def test_what_was_refused_for_good_is_the_last_to_be_tried() -> None:
    pool = pool_of("a", "b", "c", "d")
    pool.lease("p").denied(dead=True)
    pool.lease("p").denied()
    pool.lease("p").spent()
    pool.lease("p").limited(None)
    assert [each.reason for each in pool.status("p")] == ["dead", "auth", "billing", "rate_limit"]
    assert pool.lease("p").id == "d"


def test_marks_bring_what_changed_once() -> None:
    pool = pool_of("a", "b")
    pool.lease("p")
    assert pool.marks("p") == ()
    pool.lease("p").limited(60.0)
    (mark,) = pool.marks("p")
    assert (mark.id, mark.reason, mark.requests) == ("a", "rate_limit", 2)
    assert pool.marks("p") == () and pool.marks("p", uses=True) == ()


def test_marks_of_an_earlier_process_hold() -> None:
    wall = Wall()
    pool = CredentialPool(now=wall.now)
    pool.add("p", [credential("a", rests_until=wall.time + 30.0, reason="rate_limit"), credential("b")])
    assert pool.lease("p").id == "b"
    wall.time += 31.0
    assert pool.lease("p", "run").id == "a"


def test_no_key_is_shown() -> None:
    pool = pool_of("a")
    shown = f"{pool.lease('p')!r} {pool.status('p')!r} {pool.lease('p').limited(None)!r}"
    assert "sk-a" not in shown
    with pytest.raises(ValueError, match="no credential for q"):
        pool.add("q", [])
