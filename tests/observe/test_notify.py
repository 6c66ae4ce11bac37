"""A person is told of what needs them, each occasion once, and nothing waits for it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from hermes.config.notify import NotifySettings
from hermes.core.events import (
    ApprovalAsked,
    BudgetReached,
    BudgetWarned,
    Envelope,
    Event,
    TaskEnded,
    TaskPhase,
    TaskQueued,
    TurnStarted,
)
from hermes.observe.notify import LIMIT, MOST_WAITING, Channel, Notifier, NotifyFailed, channels, notifying
from hermes.observe.occasions import Occasion, Occasions
from hermes.runtime.bus import Bus
from hermes.testing.clock import VirtualClock

pytestmark = pytest.mark.anyio

ALL = ("needs_answer", "failed", "budget", "done")
ASKED = ApprovalAsked(request="ask-1", tool="terminal", what="rm -r x", reason="deletes", path=("main", "clean"))
IDLE = TaskPhase(phase="idle")
TURN = TurnStarted(turn=1, model="m")


def envelope(event: Event, task: str = "main_1", parent: str | None = None) -> Envelope:
    return Envelope(seq=1, at=5.0, session_id="s", task_id=task, parent_id=parent, event=event)


def queued(kind: str = "main", goal: str = "count") -> TaskQueued:
    return TaskQueued(kind=kind, goal=goal, depth=0)


def ended(state: str = "completed", **more: object) -> TaskEnded:
    return TaskEnded(state=state, status=state, exit_reason="x", **more)  # type: ignore[arg-type]


def found(*events: Envelope, on: tuple[str, ...] = ALL) -> list[Occasion]:
    occasions = Occasions(on)
    return [occasion for event in events if (occasion := occasions.of(event)) is not None]


def test_a_question_is_an_occasion_wherever_it_is_asked() -> None:
    (one,) = found(envelope(queued()), envelope(ASKED, "sa-1", "main_1"))
    assert (one.event, one.task_id, one.title) == ("needs_answer", "sa-1", "Hermes needs an answer: terminal")
    assert one.details["path"] == ["main", "clean"] and "rm -r x" in one.text
    assert found(envelope(ASKED), on=("done",)) == []


def test_budgets_are_told_once_at_each_mark() -> None:
    warned = BudgetWarned(kind="cost", used=4.0, limit=5.0, scope="main_1")
    reached = BudgetReached(kind="cost", limit=5.0, scope="main_1")
    turns = BudgetWarned(kind="turns", used=8, limit=10, scope="sa-1")
    told = found(*(envelope(event) for event in (queued(), warned, warned, turns, reached, reached)))
    assert [one.details["share"] for one in told] == [80, 100]


def test_failed_for_good_is_what_no_parent_can_mend() -> None:
    told = found(
        envelope(queued()),
        envelope(queued("child"), "sa-1", "main_1"),
        envelope(ended("failed", error="no luck"), "sa-1", "main_1"),
        envelope(queued("background", "survey"), "bg_1", "main_1"),
        envelope(ended("failed", error="no key"), "bg_1", "main_1"),
        envelope(TaskPhase(phase="idle", detail="the model cannot be reached")),
        envelope(ended("failed", error="broken")),
    )
    assert [(one.title, one.text) for one in told] == [
        ("Hermes failed: survey", "no key"),
        ("Hermes failed: count", "the model cannot be reached"),
        ("Hermes failed: count", "broken"),
    ]


def test_a_single_request_is_done_at_its_end() -> None:
    occasions = Occasions(ALL)
    told = [occasions.of(envelope(event)) for event in (queued(), TURN, IDLE, ended(summary="seven"))]
    assert told[3] is not None and (told[3].title, told[3].text) == ("Hermes done: count", "seven")
    assert told[2] is not None and not occasions.still(told[2]), "its rest is not told beside its end"


def test_all_done_is_a_conversation_at_rest_without_tasks() -> None:
    occasions = Occasions(ALL)

    def of(event: Event, task: str = "main_1") -> Occasion | None:
        return occasions.of(envelope(event, task, None if task == "main_1" else "main_1"))

    assert [of(queued()), of(TURN), of(queued("async"), "async_1"), of(IDLE)] == [None] * 4, "a task still runs"
    rest = of(ended(), "async_1")
    assert rest is not None and of(TURN) is None and not occasions.still(rest), "its end began another turn"
    last = of(IDLE)
    assert last is not None and occasions.still(last) and not occasions.still(last)
    assert of(ended()) is None, "leaving later is not another occasion"


@pytest.mark.parametrize("detail", ["interrupted by the user", "stopped by the user"])
def test_what_a_person_stopped_is_no_news(detail: str) -> None:
    assert found(envelope(queued()), envelope(TURN), envelope(TaskPhase(phase="idle", detail=detail))) == []
    assert found(envelope(queued()), envelope(ended("cancelled"))) == []


class Told:
    """A channel that keeps what it is given."""

    def __init__(self, send: Callable[[bytes], Awaitable[None]] | None = None) -> None:
        self.messages: list[bytes] = []
        self._send = send

    async def send(self, message: bytes) -> None:
        self.messages.append(message)
        if self._send is not None:
            await self._send(message)


def notifier(*told: Told) -> Notifier:
    ways = [Channel(f"way{number}", each.send) for number, each in enumerate(told)]
    return Notifier(Occasions(ALL), ways, redact=lambda data: data.replace(b"hunter2-hunter2", b"[redacted]"))


async def test_every_channel_gets_the_message_without_secrets(virtual_clock: VirtualClock) -> None:
    one, two, bus = Told(), Told(), Bus()
    async with notifying(notifier(one, two), bus):
        bus.publish(envelope(queued(goal="use hunter2-hunter2")))
        bus.publish(envelope(ended(summary="seven")))
    assert one.messages == two.messages
    assert [json.loads(message) for message in one.messages] == [
        {
            "schema": 1,
            "event": "done",
            "at": 5.0,
            "session_id": "s",
            "task_id": "main_1",
            "title": "Hermes done: use [redacted]",
            "text": "seven",
            "details": {"status": "completed"},
            "show": "hermes sessions show s",
        }
    ]


async def test_a_conversation_is_done_when_it_has_rested_a_moment(virtual_clock: VirtualClock) -> None:
    told, bus = Told(), Bus()
    async with notifying(notifier(told), bus):
        for event in (queued(), TURN, IDLE):
            bus.publish(envelope(event))
        await anyio.sleep(1)
        bus.publish(envelope(TURN))
        await anyio.sleep(10)
        assert told.messages == []
        bus.publish(envelope(IDLE))
        await anyio.sleep(10)
        assert [json.loads(message)["event"] for message in told.messages] == ["done"]


async def test_one_that_hangs_or_fails_holds_nobody_up_and_is_logged_once(
    virtual_clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def hang(message: bytes) -> None:
        await anyio.sleep_forever()

    async def fail(message: bytes) -> None:
        raise NotifyFailed("the server answered with status 500")

    hanging, failing, fine, bus = Told(hang), Told(fail), Told(), Bus()
    async with notifying(notifier(hanging, failing, fine), bus):
        before = anyio.current_time()
        for _ in range(3):
            bus.publish(envelope(ASKED))
        assert anyio.current_time() == before
        await anyio.sleep(4 * LIMIT)
    assert [len(each.messages) for each in (hanging, failing, fine)] == [3, 3, 3]
    assert sorted(record.getMessage() for record in caplog.records) == [
        "notify.way0 did not end within 10 s; this is said once",
        "notify.way1 failed: the server answered with status 500; this is said once",
    ]


async def test_messages_are_bounded_in_number(virtual_clock: VirtualClock, caplog: pytest.LogCaptureFixture) -> None:
    told = Told()
    made = notifier(told)
    for _ in range(MOST_WAITING + 5):
        made.listen(envelope(ASKED))
    async with notifying(made, Bus()):
        pass
    assert len(told.messages) == MOST_WAITING
    assert len(caplog.records) == 1


async def test_leaving_waits_a_little_and_not_for_ever(virtual_clock: VirtualClock) -> None:
    async def hang(message: bytes) -> None:
        await anyio.sleep_forever()

    bus = Bus()
    start = anyio.current_time()
    async with notifying(notifier(Told(hang)), bus):
        bus.publish(envelope(ASKED))
    assert anyio.current_time() - start <= 5.0


async def refuse(url: str, body: bytes) -> int:
    raise AssertionError("no webhook is configured")


@pytest.mark.parametrize("as_list", [True, False])
async def test_a_command_reads_the_event_and_sees_no_key(tmp_path: Path, as_list: bool) -> None:
    line = f'cat > "{tmp_path}/got"; env > "{tmp_path}/env"'
    settings = NotifySettings(command=("/bin/sh", "-c", line) if as_list else line)
    (way,) = channels(settings, post=refuse, environ={"PATH": "/usr/bin:/bin", "OPENAI_API_KEY": "sk-secret"})
    await way.send(b'{"event":"done"}')
    assert (tmp_path / "got").read_text() == '{"event":"done"}\n'
    assert "sk-secret" not in (tmp_path / "env").read_text()


async def test_a_command_that_fails_says_how(tmp_path: Path) -> None:
    for command, words in (("exit 3", "exit code 3"), (("no-such-program",), "cannot be started")):
        (way,) = channels(NotifySettings(command=command), post=refuse, environ={})
        with pytest.raises(NotifyFailed, match=words):
            await way.send(b"{}")


async def test_a_command_that_does_not_end_is_ended_with_its_children(tmp_path: Path) -> None:
    (way,) = channels(
        NotifySettings(command=f"(while :; do sleep 0.02; date > {tmp_path}/tick; done) & wait"),
        post=refuse,
        environ={},
    )
    async with anyio.create_task_group() as group:
        group.start_soon(way.send, b"{}")
        with anyio.fail_after(60):
            while not (tmp_path / "tick").exists():
                await anyio.sleep(0.01)
        group.cancel_scope.cancel()
    with anyio.fail_after(60):  # until no tick comes any more
        while True:
            (tmp_path / "tick").unlink(missing_ok=True)
            await anyio.sleep(0.2)
            if not (tmp_path / "tick").exists():
                break


async def test_a_webhook_gets_the_body_and_bad_answers_are_failures() -> None:
    got: list[tuple[str, bytes]] = []

    async def post(url: str, body: bytes) -> int:
        got.append((url, body))
        return 200 if len(got) == 1 else 404

    (way,) = channels(NotifySettings(webhook="https://h/secret"), post=post, environ={})
    await way.send(b"{}")
    assert got == [("https://h/secret", b"{}")]
    with pytest.raises(NotifyFailed, match="status 404") as raised:
        await way.send(b"{}")
    assert "secret" not in str(raised.value)
