from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from hermes.batch.again import merge_again
from hermes.batch.export.atropos import AtroposEncoder
from hermes.batch.export.groups import GroupOptions, scored_groups
from hermes.batch.export.job import ExportOptions, export_run
from hermes.batch.export.masks import IGNORED, UnstableTemplate, encode
from hermes.batch.export.push import push_groups
from hermes.batch.export.replay import endless_groups, read_groups
from hermes.batch.export.source import open_run
from hermes.batch.filter_settings import filter_settings
from hermes.core.errors import OperatorError, TryLater, UsageError
from tests.batch.export.runs import record, write_run
from tests.batch.fakes import answered, failed


class CharTokenizer:
    """A ChatML template whose tokens are characters. `forgets` renders earlier answers without their reasoning."""

    def __init__(self, *, wraps: bool = False, forgets: bool = False) -> None:
        self.wraps = wraps
        self.forgets = forgets

    def render(self, messages: Sequence[dict[str, Any]], tools: Sequence[Any] | None, prompt: bool) -> str:
        text = f"<|tools|>{json.dumps(tools)}" if tools else ""
        for place, message in enumerate(messages):
            content = message["content"]
            if message["role"] == "tool" and self.wraps:
                content = f"<tool_response>{content}</tool_response>"
            if self.forgets and message["role"] == "assistant" and place < len(messages) - 1:
                content = content.rpartition("</think>")[2]
            content += "".join(json.dumps(call["function"]) for call in message.get("tool_calls", ()))
            text += f"<|im_start|>{message['role']}\n{content}<|im_end|>\n"
        return text + ("<|im_start|>assistant\n" if prompt else "")

    def ids(self, messages: Sequence[dict[str, Any]], tools: Sequence[Any] | None, prompt: bool) -> list[int]:
        return [ord(letter) for letter in self.render(messages, tools, prompt)]


def two_by_two() -> list[Any]:
    return [
        record(answered("p0", text="good"), 0, 0, 1.0),
        record(answered("p0", text="bad"), 0, 1, 0.0),
        record(answered("p1", text="fine"), 1, 0, 0.5),
        record(answered("p1", text="invented", call="rm_rf"), 1, 1, 0.9),
        record(answered("p2"), 2, 0, 1.0),
        record(failed("server_error"), 2, 1),
    ]


def test_filters_never_thin_a_group(tmp_path: Path) -> None:
    source = write_run(tmp_path, two_by_two(), rollouts=2)
    losses: Counter[str] = Counter()
    groups = list(scored_groups(source.groups(), 2, GroupOptions(filtered_score=-1.0), losses))
    assert [(group.index, [member.score for member in group.members]) for group in groups] == [
        (0, [1.0, 0.0]),
        (1, [0.5, -1.0]),
    ]
    assert groups[1].members[1].filtered == "hallucinated_tool"
    assert losses == {
        "group dropped: a rollout failed or is pending": 1,
        "rejected rollout kept as a negative": 1,
    }
    losses.clear()
    kept = list(scored_groups(source.groups(), 2, GroupOptions(filtered="drop_group"), losses))
    assert [group.index for group in kept] == [0]
    assert losses["group dropped: a rollout was rejected"] == 1


def test_a_rollout_without_a_score_is_refused_unless_one_is_given(tmp_path: Path) -> None:
    source = write_run(tmp_path, [record(answered("p"), 0, number) for number in (0, 1)], rollouts=2)
    with pytest.raises(UsageError, match="--score-default"):
        list(scored_groups(source.groups(), 2, GroupOptions(), Counter()))
    (group,) = scored_groups(source.groups(), 2, GroupOptions(score_default=0.25), Counter())
    assert group.no_signal


def test_a_pair_is_the_best_and_the_worst_after_their_prompt(tmp_path: Path) -> None:
    source = write_run(tmp_path, two_by_two(), rollouts=2)
    report = export_run(source, "dpo", tmp_path / "dpo.jsonl", ExportOptions(min_gap=0.6))
    (pair,) = [json.loads(line) for line in report.path.read_text().splitlines()]
    assert pair["prompt"] == [{"role": "user", "content": "p0"}]
    assert pair["chosen"][-1]["content"] == "good" and pair["rejected"][-1]["content"] == "bad"
    assert (pair["score_chosen"], pair["score_rejected"]) == (1.0, 0.0)
    assert report.losses["group skipped: no gap between its scores"] == 1


@pytest.mark.parametrize("wraps", [False, True])
def test_masks_train_the_assistant_turns_and_nothing_else(tmp_path: Path, wraps: bool) -> None:
    secret = "TOOL-OUTPUT"
    results = [record(answered("ask", output=secret), 0, number, float(number)) for number in (0, 1)]
    source = write_run(tmp_path, results, rollouts=2)
    (group,) = scored_groups(source.groups(), 2, GroupOptions(), Counter())
    encoder = AtroposEncoder(CharTokenizer(wraps=wraps))
    assert encoder.tagged is not wraps
    row = encoder.row(group, 1.0, Counter())
    assert row is not None and row["scores"] == [0.0, 1.0] and row["generation_params"] == {"temperature": 1.0}
    for tokens, labels in zip(row["tokens"], row["masks"], strict=True):
        assert len(tokens) == len(labels)
        assert all(label in (IGNORED, token) for token, label in zip(tokens, labels, strict=True))
        trained = "".join(chr(label) for label in labels if label != IGNORED)
        assert secret in "".join(map(chr, tokens))
        assert secret not in trained and "done<|im_end|>" in trained and "terminal" in trained
    assert row["inference_logprobs"] is None


def test_a_template_that_forgets_is_refused() -> None:
    chat = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "<think>x</think>b"},
        {"role": "user", "content": "c"},
        {"role": "assistant", "content": "d"},
    ]
    with pytest.raises(UnstableTemplate, match="--chat-template"):
        encode(CharTokenizer(forgets=True), chat, None)


def test_a_sequence_that_is_too_long_drops_its_group(tmp_path: Path) -> None:
    source = write_run(tmp_path, two_by_two()[:2], rollouts=2)
    (group,) = scored_groups(source.groups(), 2, GroupOptions(), Counter())
    losses: Counter[str] = Counter()
    assert AtroposEncoder(CharTokenizer(), max_tokens=100).row(group, None, losses) is None
    assert losses == {"group dropped: a sequence is too long": 1}


class Server:
    """Answers as the live interface does; a trainer comes after `waits` questions."""

    def __init__(self, waits: int) -> None:
        self.waits = waits
        self.groups: list[dict[str, Any]] = []
        self.early = 0

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/register-env", self.register)
        app.router.add_post("/scored_data", self.take)
        return app

    async def register(self, request: web.Request) -> web.Response:
        if self.waits > 0:
            self.waits -= 1
            return web.json_response({"status": "wait for trainer to start"})
        body = await request.json()
        assert {"max_token_length", "desired_name", "weight", "group_size"} <= set(body)
        return web.json_response({"status": "success", "env_id": 7})

    async def take(self, request: web.Request) -> web.Response:
        self.early += self.waits > 0
        self.groups.append(await request.json())
        return web.json_response({"status": "received"})


async def no_sleep(seconds: float) -> None:
    """The server counts questions, not seconds."""


def group_file(path: Path, *scores: list[float]) -> Path:
    lines = [
        {"tokens": [[1, 2]] * len(each), "masks": [[-100, 2]] * len(each), "scores": each, "messages": []}
        for each in scores
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture
async def atropos() -> Any:
    server = Server(waits=2)
    runner = web.AppRunner(server.app())
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"  # type: ignore[attr-defined]
    yield server
    await runner.cleanup()


@pytest.mark.anyio
async def test_groups_are_sent_whole_and_only_when_a_trainer_is_there(atropos: Any, tmp_path: Path) -> None:
    path = group_file(tmp_path / "g.jsonl", [1.0, 0.0], [0.5, 0.5], [0.0, 1.0])
    report = await push_groups(path, atropos.url, name="run", sleep=no_sleep)
    assert (report.sent, report.no_signal, atropos.early) == (2, 1, 0)
    assert [group["env_id"] for group in atropos.groups] == [7, 7]
    assert atropos.groups[0]["scores"] == [1.0, 0.0]


@pytest.mark.anyio
async def test_without_a_trainer_nothing_is_sent(atropos: Any, tmp_path: Path) -> None:
    atropos.waits = 1000
    path = group_file(tmp_path / "g.jsonl", [1.0, 0.0])
    with pytest.raises(TryLater, match="no trainer"):
        await push_groups(path, atropos.url, name="run", wait=3, sleep=no_sleep)
    assert atropos.groups == []


@pytest.mark.anyio
async def test_a_file_that_is_no_group_is_refused_by_line(tmp_path: Path) -> None:
    path = group_file(tmp_path / "g.jsonl", [1.0, 0.0], [1.0])
    with pytest.raises(UsageError, match="g.jsonl:2"):
        await push_groups(path, "http://127.0.0.1:1", name="run")
    with pytest.raises(OperatorError, match="cannot reach"):
        await push_groups(group_file(path, [1.0, 0.0]), "http://127.0.0.1:1", name="run")


def test_replay_groups_the_rows_of_one_prompt(tmp_path: Path) -> None:
    source = write_run(tmp_path, two_by_two(), rollouts=2)
    path = export_run(source, "sharegpt", tmp_path / "t.jsonl", ExportOptions()).path
    groups = list(read_groups(path, 2))
    assert list(islice(endless_groups(path, 2), 5)) == (groups * 5)[:5]
    assert list(endless_groups(path, 9)) == []
    assert [scores for _, scores in groups] == [[1.0, 0.0]]
    chat = groups[0][0][0]
    assert [message["role"] for message in chat] == ["user", "assistant", "tool", "assistant"]
    assert "<tool_call>" in chat[1]["content"] and chat[2]["content"].startswith("<tool_response>")


def test_a_group_export_and_a_merge_reject_the_same_rows(tmp_path: Path) -> None:
    first, second = answered("p"), answered("p")
    records = [record(first, 0, 0, 1.0), record(second, 1, 0, 1.0)]
    twin = msgspec.structs.replace(records[1], source=records[0].source)
    source = write_run(tmp_path, [records[0], twin])
    merge_again(tmp_path, "run", filter_settings(["default", "duplicate"]))
    again = open_run(tmp_path, "run")
    assert [[item.head.reason for item in group] for group in again.groups()] == [[""], ["duplicate"]]
    assert len(list(again.kept())) == 1 and len(list(source.kept())) == 2
