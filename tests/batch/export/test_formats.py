from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from hermes.batch.export.conversation import messages
from hermes.batch.export.job import FORMATS, ExportOptions, export_run
from hermes.batch.export.llamafactory import llamafactory_row
from hermes.batch.export.tags import tagged_row
from hermes.batch.export.trees import tree_rows
from hermes.batch.rollout import ChildRecord, RolloutResult
from hermes.core.errors import UsageError
from hermes.core.messages import Assistant, Notice, Steer, Text, ToolCall, ToolResult, User
from tests.batch.export.runs import record, write_run
from tests.batch.fakes import answered, failed, spec

NASTY = 'say "</tool_call>" \n\t и 漢字 🙂 <tool_response>'


def parallel(**more: Any) -> RolloutResult:
    """Two calls at once, whose provider ids are the same in each turn, with results out of order; a notice, a word."""
    entries = (
        User(content=(Text("go"),)),
        Assistant(
            text="two at once",
            thinking="plan",
            calls=(
                ToolCall(id="call_0", name="terminal", arguments={"command": NASTY}),
                ToolCall(id="call_0", name="read_file", arguments={"path": "a", "limit": 3}),
            ),
            stop="tool_calls",
        ),
        ToolResult(position=1, index=1, call_id="call_0", name="read_file", content=(Text("file a"),)),
        ToolResult(position=1, index=0, call_id="call_0", name="terminal", content=(Text('{"exit_code": 0}'),)),
        Notice(kind="children", text="child sa-1 ended", tasks=("sa-1",)),
        Steer(text="be quick", receipt="r1"),
        Assistant(text="", thinking="again", calls=(ToolCall(id="call_0", name="terminal", arguments={}),)),
        ToolResult(position=6, index=0, call_id="call_0", name="terminal", content=(Text("ok"),)),
        Assistant(text="done", thinking="so"),
    )
    return RolloutResult(
        state="completed",
        entries=entries,
        model="fake-model",
        tools=(spec("terminal"), spec("read_file")),
        **more,
    )


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_results_find_their_calls_although_ids_repeat_and_order_differs() -> None:
    read = messages(parallel().entries)
    calls = {call.id: call.name for message in read for call in message.calls}
    assert len(calls) == 3
    results = [message for message in read if message.role == "tool"]
    assert [calls.get(message.call_id, "-") for message in results] == ["read_file", "terminal", "-", "terminal"]
    assert [message.name for message in results] == ["read_file", "terminal", "runtime", "terminal"]


@pytest.mark.parametrize("format_name", [name for name in FORMATS if name not in ("parquet", "dpo", "atropos")])
def test_a_format_writes_each_kept_row_with_the_same_keys(tmp_path: Path, format_name: str) -> None:
    source = write_run(
        tmp_path,
        [record(answered("p0"), 0), record(failed("server_error"), 1), record(answered("p2", thinking=""), 2)]
        + [record(parallel(), 3)],
    )
    report = export_run(source, format_name, tmp_path / "out.jsonl", ExportOptions())
    found = rows(report.path)
    assert report.rows == len(found) == 2
    assert len({tuple(row) for row in found}) == 1
    assert [row["prompt_index"] for row in found] == [0, 3]
    assert not list(tmp_path.glob(".*.tmp"))


@pytest.mark.fault("B105")
def test_a_number_beyond_64_bits_does_not_cost_the_file(tmp_path: Path) -> None:
    arguments = {"n": [2**70, {"deep": -(2**63) - 1}], "fits": 2**63 - 1, "flag": True}
    result = RolloutResult(
        state="completed",
        entries=(
            User(content=(Text("p"),)),
            Assistant(thinking="t", calls=(ToolCall(id="c", name="terminal", arguments=arguments),)),
        ),
        tools=(spec("terminal"),),
    )
    source = write_run(tmp_path, [record(result)])
    (row,) = rows(export_run(source, "sharegpt", tmp_path / "s.jsonl", ExportOptions()).path)
    written = row["conversations"][1]["tool_calls"][0]["arguments"]
    assert written == {"n": [str(2**70), {"deep": str(-(2**63) - 1)}], "fits": 2**63 - 1, "flag": True}
    (chat,) = rows(export_run(source, "openai", tmp_path / "o.jsonl", ExportOptions()).path)
    assert chat["messages"][1]["tool_calls"][0]["function"]["arguments"] == written


@pytest.mark.fault("B105")
def test_typed_rows_have_one_type_a_key_whatever_the_calls(tmp_path: Path) -> None:
    source = write_run(tmp_path, [record(answered("p", call=None), 0), record(parallel(), 1)])
    report = export_run(source, "sharegpt", tmp_path / "out.jsonl", ExportOptions(arguments="json"))
    for row in rows(report.path):
        for turn in row["conversations"]:
            assert set(turn) == {"from", "value", "tool_calls"}
            assert all(isinstance(call["arguments"], str) for call in turn["tool_calls"])
    call = rows(report.path)[1]["conversations"][1]["tool_calls"][0]
    assert json.loads(call["arguments"]) == {"command": NASTY}


CALL = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)
RESPONSE = re.compile(r"<tool_response>\s*(.*?)\s*</tool_response>", re.DOTALL)


@pytest.mark.fault("B103")
def test_tagged_calls_are_read_back_whole() -> None:
    row = tagged_row(record(parallel()), ["terminal"], 10)
    turns = row["conversations"]
    assert [turn["from"] for turn in turns] == ["system", "human", "gpt", "tool", "human", "gpt", "tool", "gpt"]
    calls = [json.loads(text) for text in CALL.findall(turns[2]["value"])]
    assert calls == [
        {"name": "terminal", "arguments": {"command": NASTY}},
        {"name": "read_file", "arguments": {"path": "a", "limit": 3}},
    ]
    results = [json.loads(text) for text in RESPONSE.findall(turns[3]["value"])]
    assert [(item["name"], item["content"]) for item in results] == [
        ("read_file", "file a"),
        ("terminal", {"exit_code": 0}),
        ("runtime", "child sa-1 ended"),
    ]
    listed = re.search(r"<tools>\n(.*)\n</tools>", turns[0]["value"])
    assert listed is not None and [tool["name"] for tool in json.loads(listed[1])] == ["terminal", "read_file"]


@pytest.mark.fault("B103")
def test_prose_with_a_tag_of_the_format_is_skipped_and_counted(tmp_path: Path) -> None:
    source = write_run(tmp_path, [record(answered("p", text="write <tool_call> like so")), record(answered("q"), 1)])
    report = export_run(source, "hermes", tmp_path / "out.jsonl", ExportOptions())
    assert report.rows == 1
    assert report.losses == {"row skipped: prose holds a tag of the format": 1}


def test_openai_rows_have_object_arguments_and_tools_as_text(tmp_path: Path) -> None:
    source = write_run(tmp_path, [record(parallel())])
    (row,) = rows(export_run(source, "openai", tmp_path / "o.jsonl", ExportOptions()).path)
    first = row["messages"][1]
    assert first["reasoning_content"] == "plan"
    assert first["tool_calls"][0]["function"] == {"name": "terminal", "arguments": {"command": NASTY}}
    ids = {call["id"] for message in row["messages"] for call in message.get("tool_calls", ())}
    answers = [message["tool_call_id"] for message in row["messages"] if message["role"] == "tool"]
    assert ids <= set(answers)
    assert [tool["function"]["name"] for tool in json.loads(row["tools"])] == ["terminal", "read_file"]


def test_llamafactory_rows_alternate_and_say_what_they_lost(tmp_path: Path) -> None:
    losses: Counter[str] = Counter()
    row = llamafactory_row(record(parallel()), losses)
    assert row is not None
    turns = row["conversations"]
    assert [turn["from"] for turn in turns] == [
        "human",
        "function_call",
        "observation",
        "function_call",
        "observation",
        "gpt",
    ]
    assert [call["name"] for call in json.loads(turns[1]["value"])] == ["terminal", "read_file"]
    assert turns[2]["value"].splitlines() == ["file a", '{"exit_code": 0}', "child sa-1 ended", "be quick"]
    assert losses == {
        "text beside a call dropped": 1,
        "reasoning before a call dropped": 2,
        "results merged": 2,
        "messages merged": 1,
    }
    cut = RolloutResult(state="exhausted", entries=parallel().entries[:3], tools=(spec("terminal"),))
    shorter = llamafactory_row(record(cut), losses)
    assert shorter is not None and shorter["conversations"][-1]["from"] == "function_call"
    source = write_run(tmp_path, [record(answered("p"))])
    report = export_run(source, "llamafactory", tmp_path / "rows.jsonl", ExportOptions())
    info = json.loads((tmp_path / "dataset_info.json").read_text())
    assert info["run"]["file_name"] == "rows.jsonl" and report.beside == (tmp_path / "dataset_info.json",)


@pytest.mark.fault("B112")
def test_trees_link_children_at_any_depth() -> None:
    def child(task: str, parent: str) -> ChildRecord:
        return ChildRecord(task_id=task, parent_id=parent, goal=f"do {task}", entries=answered(task).entries)

    result = answered("p", children=(child("sa-2", "sa-1"), child("sa-1", "root"), child("sa-3", "root")))
    found = list(tree_rows(record(result)))
    assert [(row["task_id"], row["parent_id"], row["depth"]) for row in found] == [
        ("root", None, 0),
        ("sa-1", "root", 1),
        ("sa-3", "root", 1),
        ("sa-2", "sa-1", 2),
    ]
    assert len({row["tree_id"] for row in found}) == 1 and len({tuple(row) for row in found}) == 1
    assert found[3]["messages"][0] == {"role": "user", "content": "sa-2"}


def test_parquet_has_plain_columns(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    source = write_run(tmp_path, [record(answered("p", call=None), 0), record(parallel(), 1)])
    report = export_run(source, "parquet", tmp_path / "out.parquet", ExportOptions())
    table = parquet.read_table(report.path)
    assert report.rows == table.num_rows == 2
    turns = table.column("conversations").to_pylist()
    assert turns[0][0] == {"from": "human", "value": "p", "tool_calls": []}
    assert json.loads(turns[1][1]["tool_calls"][0]["arguments"]) == {"command": NASTY}


def test_what_cannot_be_exported_is_said_before_anything_is_written(tmp_path: Path) -> None:
    source = write_run(tmp_path, [record(answered("p"))])
    for format_name, word in (("nothing", "sharegpt"), ("dpo", "rollouts_per_prompt"), ("atropos", "--tokenizer")):
        with pytest.raises(UsageError, match=word):
            export_run(source, format_name, tmp_path / "out" / "x.jsonl", ExportOptions())
        assert not (tmp_path / "out" / "x.jsonl").exists()
