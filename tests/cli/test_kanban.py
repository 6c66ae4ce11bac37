"""`hermes kanban`: what a person does with a board, what it answers, and what it refuses."""

from __future__ import annotations

import io
import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from hermes.chat.card_text import age, card_rows, read_moment, read_span
from hermes.chat.render import one_line
from hermes.cli.kanban_figures import follow
from hermes.cli.kanban_moving import groups
from hermes.cli.kanban_watch import Snapshot, board_screen
from hermes.config import find_home, load
from hermes.core.errors import UsageError
from hermes.kanban.board import Board
from hermes.kanban.card import Card, CardEvent, Link, NewCard
from hermes.kanban.ending import Authority, Completion
from hermes.kanban.home import open_boards
from hermes.kanban.moves import STATUSES
from hermes.kanban.reading import CardFilter
from hermes.testing.scripted import reply
from hermes.testing.server import serve_in_thread
from tests.cli.conftest import Ran

Hermes = Callable[..., Ran]


@contextmanager
def opened(name: str | None = None) -> Iterator[Board]:
    home = find_home(os.environ)
    with open_boards(home, load(home).settings).open(name) as board:
        yield board


@pytest.fixture
def kanban(hermes: Hermes, hermes_home: Path) -> Hermes:
    for name in ("researcher", "coder"):
        hermes("profile", "create", name)
    return lambda *args: hermes("kanban", *args)


def made(kanban: Hermes, title: str, *args: str) -> str:
    ran = kanban("create", title, *args, "--json")
    assert ran.code == 0, ran.err
    card_id: str = json.loads(ran.out)["card"]["id"]
    return card_id


def shown(kanban: Hermes, card: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(kanban("show", card, "--json").out)
    return found


def test_a_card_from_its_making_to_its_end(kanban: Hermes) -> None:
    first = made(kanban, "Read the API", "--assignee", "researcher", "--priority", "2")
    ran = kanban("create", "Write the client", "--assignee", "coder", "--parent", first, "--budget-usd", "2")
    assert ran.code == 0 and " is todo, for coder" in ran.out
    assert "no dispatcher serves this board: hermes kanban daemon" in ran.err
    second = ran.out.split()[0]
    assert [line.split()[1:3] for line in kanban("list").out.splitlines()] == [[first, "ready"], [second, "todo"]]
    assert kanban("complete", first, "--result", "Ein Bericht", "--summary", "gelesen").out == f"{first} is done\n"
    assert shown(kanban, second)["task"]["status"] == "ready"
    text = kanban("show", second[:6]).out
    assert "limits     $2" in text and f"✓ {first} done  Read the API" in text
    assert "Ein Bericht" in kanban("context", second).out
    assert kanban("archive", first, second).out.splitlines() == [f"{first} is archived", f"{second} is archived"]
    assert kanban("list").out == "no cards on default\n"


def test_the_same_key_makes_one_card(kanban: Hermes) -> None:
    first = made(kanban, "a", "--idempotency-key", "k")
    ran = kanban("create", "b", "--idempotency-key", "k")
    assert ran.out.startswith(first) and "it was there already" in ran.out


def test_every_refused_verb_says_what_is_allowed(kanban: Hermes) -> None:
    card = made(kanban, "a", "--assignee", "coder")
    for verb, more in (("unblock", ()), ("request-changes", ("why",)), ("reopen", ())):
        ran = kanban(verb, card, *more)
        assert ran.code == 1 and f"{card} is ready: " in ran.err, verb
        assert "Possible from ready: schedule, claim, complete, block, request_review, archive." in ran.err
    ran = kanban("reclaim", card)
    assert ran.code == 1 and "no worker has to be stopped" in ran.err
    ran = kanban("unblock", card, made(kanban, "b", "--blocked"))
    assert ran.code == 1 and " is ready, for nobody" in ran.out and f"{card} is ready: unblock" in ran.err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("create", " "), "a card needs a title"),
        (("create", "a", "--assignee", "codr"), "no profile 'codr'. Did you mean coder?"),
        (("create", "a", "--reviewer", "nobody-here"), "no profile 'nobody-here'"),
        (("create", "a", "--workspace", "dir:relative"), "is no workspace"),
        (("create", "a", "--parent", "t_none"), "there is no card 't_none'"),
        (("create", "a", "--max-runtime", "soon"), "no span of time"),
        (("create", "a", "--scheduled-at", "whenever"), "no moment"),
        (("create", "a", "--provider", "x"), "needs a model too"),
        (("create", "a", "--branch", "x"), "a branch needs the workspace worktree"),
        (("create", "a", "--triage", "--blocked"), "exclude each other"),
        (("create", "a", "--skill", "x"), "--skill is not supported"),
        (("list", "--status", "redy"), "'redy' is no state of a card"),
        (("list", "--sort", "size"), "'size' is no order"),
        (("complete", "a", "b", "--summary", "x"), "are for one card"),
        (("lst",), "Did you mean 'list'?"),
        (("--board", "web", "list"), "there is no board 'web' (asked for)"),
        (("boards", "create", "A b"), "is no board name"),
        (("boards", "rm", "default"), "the default board cannot be removed"),
    ],
)
def test_what_cannot_be_is_named(kanban: Hermes, args: tuple[str, ...], said: str) -> None:
    ran = kanban(*args)
    assert ran.code in (1, 2) and said in ran.err and "Traceback" not in ran.err


def test_cycles_and_self_links(kanban: Hermes) -> None:
    one, two, three = (made(kanban, title) for title in "abc")
    assert kanban("link", one, two).out == f"{two} (todo) waits for {one} (ready)\n"
    assert kanban("link", two, three).code == 0
    ran = kanban("link", three, one)
    assert ran.code == 1 and f"that would be a cycle ({one} -> {two} -> {three} -> {one})" in ran.err
    assert "cannot be linked to itself" in kanban("link", one, one).err
    assert kanban("link", three, one, "--kind", "follows").code == 0
    assert kanban("unlink", one, two).out == f"{two} (ready) no longer waits for {one}\n"
    assert "is not linked" in kanban("unlink", one, two).err


def test_editing_assigning_and_commenting(kanban: Hermes, tmp_path: Path) -> None:
    card = made(kanban, "a", "--assignee", "coder")
    (tmp_path / "body.md").write_text("Долгое описание", encoding="utf-8")
    ran = kanban("edit", card, "--title", "b", "--body", f"@{tmp_path / 'body.md'}", "--max-runtime", "2h")
    assert ran.out == f"{card}: title, body, max_runtime_seconds changed\n"
    task = shown(kanban, card)["task"]
    assert (task["title"], task["body"], task["max_runtime_seconds"]) == ("b", "Долгое описание", 7200)
    assert kanban("edit", card, "--max-runtime", "none", "--budget-usd", "1.5").code == 0
    task = shown(kanban, card)["task"]
    assert (task["max_runtime_seconds"], task["budget_usd"]) == (None, 1.5)
    assert "expected a number, or none" in kanban("edit", card, "--budget-usd", "much").err
    assert "nothing to change" in kanban("edit", card).err
    assert kanban("assign", card, "none").out == f"{card} is for nobody now\n"
    assert kanban("comment", card, "Привет", "--author", "анна").out == f"comment 1 on {card}\n"
    assert "анна, " in kanban("show", card).out and "  Привет" in kanban("show", card).out


def test_files_of_a_card(kanban: Hermes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    card = made(kanban, "a")
    (tmp_path / "spec.txt").write_bytes(b"data")
    monkeypatch.chdir(tmp_path)
    assert kanban("attach", card, "spec.txt").out == "attachment 1: spec.txt, 4 B\n"
    ran = kanban("attachments", card, "--get", "spec.txt")
    assert ran.code == 1 and "spec.txt exists" in ran.err
    assert kanban("attachments", card, "--get", "1", "-o", "copy.txt").code == 0
    assert (tmp_path / "copy.txt").read_bytes() == b"data"
    assert "spec.txt" in kanban("attachments", card).out
    assert kanban("attachments", card, "--remove", "spec.txt").out == "no attachments\n"
    assert kanban("attach", card, "nothing.txt").code == 1
    with open(tmp_path / "big", "wb") as file:
        file.truncate(25 * 1024 * 1024 + 1)
    assert "a card keeps files up to" in kanban("attach", card, "big").err


def test_a_card_that_a_worker_has_is_asked_for(kanban: Hermes) -> None:
    cards = [made(kanban, title, "--assignee", "coder") for title in "abcd"]
    with opened() as board:
        for card in cards:
            assert board.claim(profiles=["coder"], card=card) is not None
    for verb, state in (("archive", "archived"), ("block", "blocked"), ("reclaim", "ready"), ("schedule", "scheduled")):
        card = cards.pop()
        ran = kanban(verb, card, *(["no more"] if verb == "block" else []))
        assert ran.out == f"{card}: its worker is asked to stop; then it is {state}\n"
        assert "no dispatcher serves this board to see the worker gone" in ran.err
        assert shown(kanban, card)["task"]["stop_requested"] == state
    running = made(kanban, "e", "--assignee", "coder")
    with opened() as board:
        board.claim(profiles=["coder"], card=running)
    for args in (("complete", running), ("assign", running, "researcher")):
        ran = kanban(*args)
        assert ran.code == 1 and "It has to end first" in ran.err


def test_a_person_takes_a_card_and_gives_it_back(kanban: Hermes) -> None:
    card = made(kanban, "a", "--assignee", "coder")
    assert kanban("claim", card).out == f"{card} is yours\n"
    assert kanban("reclaim", card, "--reason", "no time").out == f"{card} is ready, for coder\n"
    assert kanban("claim", card).code == 0
    assert kanban("complete", card, "--summary", "by hand").out == f"{card} is done\n"
    assert kanban("reopen", card, "--work").out == f"{card} is ready, for coder\n"
    assert [run["outcome"] for run in json.loads(kanban("runs", card, "--json").out)["runs"]] == [
        "reclaimed",
        "completed",
    ]


def test_parking_promoting_and_reviewing(kanban: Hermes) -> None:
    card = made(kanban, "a", "--assignee", "coder")
    assert kanban("schedule", card, "2h").out == f"{card} is scheduled\n"
    assert kanban("promote", card).out == f"{card} is ready, for coder\n"
    assert kanban("request-review", card, "--reviewer", "researcher", "--summary", "look").out == f"{card} is review\n"
    assert kanban("request-changes", card, "tests are missing").out == f"{card} is ready, for coder\n"
    assert kanban("block", card, "Which one?", "--kind", "needs_input").out == f"{card} is blocked\n"
    assert "question 1  Which one?" in kanban("show", card).out
    idea = made(kanban, "b", "--triage")
    assert kanban("promote", idea).out == f"{idea} is ready, for nobody\n"
    waiting = made(kanban, "c", "--parent", card)
    assert f"{waiting} waits for {card} (blocked)" in kanban("promote", waiting).err


def test_a_worker_may_not_change_the_board_by_command(kanban: Hermes, monkeypatch: pytest.MonkeyPatch) -> None:
    card = made(kanban, "a")
    monkeypatch.setenv("HERMES_KANBAN_TASK", card)
    for args in (("complete", card, "--override"), ("create", "b"), ("comment", card, "x"), ("assign", card, "coder"),
                 ("pause",), ("boards", "create", "web"), ("boards", "switch", "default")):  # fmt: skip
        ran = kanban(*args)
        assert ran.code == 2 and "a worker changes the board with its tools" in ran.err
    assert kanban("show", card).code == 0


def test_boards(kanban: Hermes, tmp_path: Path) -> None:
    assert kanban("boards", "create", "web", "--workdir", str(tmp_path)).code == 0
    card = made(kanban, "in default")
    with opened("web") as board:
        other = board.create(NewCard(title="in web"), author="t").card.id
    assert other in kanban("--board", "web", "list").out and card not in kanban("--board", "web", "list").out
    assert kanban("boards", "switch", "web").out.startswith("web is used from now on")
    assert other in kanban("list").out
    table = json.loads(kanban("boards", "list", "--json").out)["boards"]
    assert [(each["slug"], each["current"], each["cards"]) for each in table] == [
        ("default", False, {"ready": 1}),
        ("web", True, {"ready": 1}),
    ]
    assert f"repository   {tmp_path}" in kanban("boards", "show").out
    assert "there is a board 'web' already" in kanban("boards", "create", "web").err
    assert "put away in" in kanban("boards", "rm", "web").out
    assert card in kanban("list").out


def test_figures_name_money_and_limits(kanban: Hermes) -> None:
    card = made(kanban, "a", "--assignee", "coder")
    with opened() as board:
        from hermes.kanban.budgets import Reserve

        taken = board.claim(profiles=["coder"], card=card, money=Reserve(usd=1.0))
        assert taken is not None
        board.spend(taken.claim.run_id, usd=0.25, tokens=1234)
    text = kanban("stats").out
    assert "1 running" in text and "today $0.25 of $25, 1,234 of 25,000,000 tokens, $1.00 set aside" in text
    assert "$0.2500  1,234 tokens  1 run" in text and "by profile\n  coder" in text
    found = json.loads(kanban("stats", "--json").out)
    assert found["by_status"]["running"] == 1 and found["spent"]["profile"][0]["usd"] == 0.25
    assert found["limits"] == {"card_usd": 5.0, "day_usd": 25.0, "card_tokens": 5_000_000, "day_tokens": 25_000_000}
    assert "coder       1 running" in kanban("assignees").out


def test_what_happened_is_told_with_author_and_time(kanban: Hermes) -> None:
    card = made(kanban, "a")
    kanban("comment", card, "x")
    kanban("complete", card)
    kinds = [json.loads(line)["kind"] for line in kanban("events", card, "--json").out.splitlines()]
    assert kinds == ["created", "commented", "completed"]
    assert kanban("events", "--kinds", "completed", "--limit", "1").out.count("\n") == 1
    assert json.loads(kanban("events", "--after", "2", "--json").out)["kind"] == "completed"
    assert "the newest event has the number 3" in kanban("events", "--after", "9").err
    assert len(kanban("tail", card).out.splitlines()) == 3
    asking = made(kanban, "b", "--blocked")
    ran = kanban("tail", asking)
    assert ran.code == 75 and f"{asking} is blocked: " in ran.err and f"hermes kanban unblock {asking}" in ran.err
    assert made(kanban, "c") and kanban("create", "d", "-q").out.startswith("t_")
    assert "has no log on this machine" in kanban("log", card).err


def test_following_ends_with_the_card(kanban: Hermes) -> None:
    with opened() as board:
        card = board.create(NewCard(title="a"), author="t").card.id
        seen: list[str] = []

        def pause(_: float) -> None:
            board.complete(card, Completion(summary="x"), Authority(author="t"))

        def idle() -> None:
            seen.append("idle")

        follow(board, 0, lambda event: seen.append(event.kind), card=card, idle=idle, sleep=pause)
    assert seen == ["created", "idle", "completed"]


def test_an_imported_board_is_only_read(kanban: Hermes, tmp_path: Path) -> None:
    path = tmp_path / "kanban.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE tasks (id TEXT, title TEXT, status TEXT, assignee TEXT)")
        db.execute("INSERT INTO tasks VALUES ('t_aaaaaaaa', 'Alt', 'ready', 'coder')")
    before = path.read_bytes()
    assert kanban("import", str(path)).out.startswith("1 cards copied (0 were here)")
    assert kanban("import", str(path)).out.startswith("0 cards copied (1 were here)")
    assert path.read_bytes() == before and "Alt" in kanban("list").out
    assert kanban("import", str(tmp_path / "none.db")).code == 2


@pytest.mark.slow
def test_ten_thousand_cards_are_listed_at_once(kanban: Hermes, capsys: pytest.CaptureFixture[str]) -> None:
    with opened() as board, board.database.write() as tx:
        from hermes.kanban.creating import create

        for number in range(10_000):
            create(tx, NewCard(title=f"card {number}"), author="t", here=board.here, claim=None, host_id=None)
    began = time.process_time()
    ran = kanban("list")
    assert time.process_time() - began < 1.0
    assert len(ran.out.splitlines()) == 51 and "the first 50 of 10000 cards; --limit 0 shows all" in ran.out
    began = time.process_time()
    assert json.loads(kanban("list", "--limit", "0", "--json").out)["count"] == 10_000
    assert time.process_time() - began < 5.0
    assert "9960" in kanban("watch", "--once").out or "more" in kanban("watch", "--once").out


def test_a_newer_board_is_refused_in_one_sentence(kanban: Hermes, hermes_home: Path) -> None:
    made(kanban, "a")
    with sqlite3.connect(hermes_home / "kanban-board.db") as db:
        db.execute("INSERT INTO migrations (version, name, applied_at) VALUES (99, 'later', 0)")
    ran = kanban("list")
    assert ran.code == 1 and "install the newer hermes again" in ran.err and "Traceback" not in ran.err


def _seen(cards: list[Card], events: list[CardEvent], **more: Any) -> Snapshot:
    by_state = {status: [card for card in cards if card.status == status] for status in STATUSES}
    counts = {status: len(found) for status, found in by_state.items()}
    plain: dict[str, Any] = {"board": "default", "money": "today $0", "served": True, "questions": 0, "now": 0.0}
    return Snapshot(cards=by_state, counts=counts, events=events, **{**plain, **more})


@pytest.mark.parametrize("width", [40, 80, 140])
def test_the_board_fits_the_terminal(kanban: Hermes, width: int) -> None:
    with opened() as board:
        for number in range(30):
            board.create(NewCard(title=f"Очень длинное название карточки № {number} 漢字漢字漢字"), author="t")
        seen = _seen(board.cards(CardFilter()), board.newest_events(limit=5))
    out = io.StringIO()
    Console(file=out, width=width, height=24, force_terminal=True).print(board_screen(seen, width, 24))
    plain = Console(file=io.StringIO(), width=width, record=True)
    plain.print(board_screen(seen, width, 24))
    lines = plain.export_text().splitlines()
    assert len(lines) <= 24 and "… " in "".join(lines) and "more" in "".join(lines)
    assert max(len(line.rstrip()) for line in lines) <= width


def test_words_for_people() -> None:
    assert [age(seconds) for seconds in (5, 90, 7200, 200_000)] == ["5s", "2m", "2h", "2d"]
    assert (read_span("30s"), read_span("5m"), read_span("1d"), read_span("12")) == (30, 300, 86_400, 12)
    assert read_moment("2h", 100.0) == 7300.0 and read_moment("2026-03-01T00:00:00+00:00", 0) == 1_772_323_200.0
    for wrong in ("", "0", "-5", "x"):
        with pytest.raises(UsageError):
            read_span(wrong)
    assert one_line("a\x1b[31m\nb", 80) == "a[31m b" or "\x1b" not in one_line("a\x1b[31m\nb", 80)
    assert card_rows([], None) == []


def test_the_work_of_finished_cards_is_exported_as_linked_rows(
    kanban: Hermes, hermes: Hermes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve_in_thread(lambda _: reply("прочитано")) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789abcdef")
        assert hermes("-p", "coder", "-m", "test-model", "-z", "read sk-test-0123456789abcdef").code == 0
    (session,) = json.loads(hermes("-p", "coder", "sessions", "list", "--json").out)
    one, by_hand = made(kanban, "Read", "--assignee", "coder"), made(kanban, "By hand")
    last = made(kanban, "Sum up", "--parent", one, "--parent", by_hand)
    with opened() as board:
        taken = board.claim(profiles=["coder"], card=one)
        assert taken is not None
        board.note_process(taken.claim, author="coder", session_id=session["session_id"])
        board.complete(one, Completion(summary="x"), Authority(author="coder", claim=taken.claim))
    kanban("complete", by_hand)
    path = tmp_path / "board.jsonl"
    told = json.loads(kanban("export", str(path), "--json").out)
    assert (told["rows"], told["cards"], told["trees"]) == (1, 1, 1)
    assert told["left_out"] == {"runs without a session (done by hand, or never begun)": 1}
    (row,) = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    assert (row["tree_id"], row["card_id"], row["profile"], row["parent_id"]) == (last, one, "coder", None)
    assert [message["role"] for message in row["messages"]] == ["user", "assistant"]
    assert "прочитано" in path.read_text(encoding="utf-8") and "sk-test-0123" not in path.read_text(encoding="utf-8")
    assert kanban("export", "-", "--root", by_hand).out == ""


def test_cards_that_hang_together_are_one_tree() -> None:
    cards: Any = dict.fromkeys(("a", "b", "c", "d", "x"))
    links = [
        Link(parent_id=one, child_id=two, kind="needs") for one, two in (("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"))
    ]
    assert groups(cards, links) == {"a": "d", "b": "d", "c": "d", "d": "d", "x": "x"}
    assert groups(cards, links, "b") == {"b": "b", "a": "b"}
