from __future__ import annotations

import json

import pytest

from hermes.batch.attempt import outcome, write_up
from hermes.batch.dataset import DatasetRow
from hermes.batch.distribution import Draw
from hermes.batch.export.conversation import messages
from hermes.batch.filters import judge
from hermes.batch.plan import Item
from hermes.batch.reasoning import gpt_value, reasoning_stats, split_reasoning
from hermes.batch.record import decode_record, encode_record
from hermes.batch.rollout import ChildRecord, RolloutResult
from hermes.batch.trajectory import ROW_KEYS, build_row, call_succeeded, child_rows, conversations
from hermes.core.codec import encode_json
from hermes.core.messages import Assistant, Image, Notice, Steer, Text, ToolCall, ToolResult, Usage, User
from tests.batch.fakes import answered, failed, spec

OFFERED = ["read_file", "terminal", "todo", "write_file"]


def record(result: RolloutResult, **source: object):
    row = DatasetRow(line=1, prompt="p", source={"prompt": "p", **source})
    item = Item(key="abc:0:0", row_id="abc:0", index=42, row=row)
    return write_up(item, Draw(toolsets=("terminal", "file")), result, 2000.0)


def test_the_row_has_the_documented_shape() -> None:
    row = build_row(record(answered("p"), tag=1), OFFERED, 10)
    assert tuple(row) == ROW_KEYS
    assert row["prompt_index"] == 42 and row["completed"] is True and row["toolsets_used"] == ["terminal", "file"]
    assert row["conversations"] == [
        {"from": "human", "value": "p"},
        {
            "from": "gpt",
            "value": "<think>\nlet me see\n</think>\nI will look.",
            "tool_calls": [{"name": "terminal", "arguments": {"command": "ls"}}],
        },
        {"from": "tool", "value": "ok"},
        {"from": "gpt", "value": "<think>\nlet me see\n</think>\ndone"},
    ]
    assert row["tool_stats"]["terminal"] == {"count": 1, "success": 1, "failure": 0}
    assert row["tool_stats"]["todo"] == {"count": 0, "success": 0, "failure": 0}
    assert row["metadata"]["batch_num"] == 4 and row["metadata"]["timestamp"] == 2000.0
    assert json.loads(row["extra"]) == {"tag": 1}
    assert [tool["name"] for tool in json.loads(row["tools"])] == ["terminal", "read_file", "write_file"]


@pytest.mark.fault("B105")
def test_rows_that_went_differently_have_the_same_keys_and_types() -> None:
    results = [answered("p"), answered("p", call=None), failed("server_error"), answered("p", state="exhausted")]
    rows = [build_row(record(result), OFFERED, 10) for result in results]
    shapes = {tuple((key, type(value)) for key, value in row.items()) for row in rows}
    assert len(shapes) == 1
    assert {tuple(row["tool_stats"]) for row in rows} == {tuple(OFFERED)}
    assert all(isinstance(turn["value"], str) for row in rows for turn in row["conversations"])


def test_an_invented_tool_has_no_place_in_the_statistics() -> None:
    row = build_row(record(answered("p", call="teleport")), OFFERED, 10)
    assert "teleport" not in row["tool_stats"] and "teleport" not in row["tool_error_counts"]


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("fine", True),
        ("", False),
        ("Error: no", False),
        ('{"error": "x"}', False),
        ('{"error": null, "exit_code": 1}', True),
        ('{"success": false}', False),
        ('{"content": {"error": "x"}}', False),
        ("{not json", True),
    ],
)
def test_success_of_a_call(text: str, good: bool) -> None:
    result = ToolResult(position=1, index=0, call_id="c", name="t", content=(Text(text),))
    assert call_succeeded(result) is good


def test_what_the_tool_says_of_itself_counts_more() -> None:
    result = answered("p", output="Error: looks bad", call_success={"1:0": True})
    assert build_row(record(result), OFFERED, 10)["tool_error_counts"]["terminal"] == 0


def test_notices_are_observations_and_follow_ups_are_human() -> None:
    entries = [
        User(content=(Text("p"),)),
        Assistant(text="waiting"),
        Notice(kind="children", text="child ended: 42"),
        User(content=(Text("and?"),), source="follow_up"),
    ]
    assert [turn["from"] for turn in conversations(entries)] == ["human", "gpt", "tool", "human"]


def test_a_picture_of_a_correction_is_named_as_one_of_a_message() -> None:
    picture = Image(media_type="image/png", data="aGk=")
    said = [User(content=(Text("like "), picture)), Steer(text="like ", pictures=(picture,), receipt="r")]
    assert [turn["value"] for turn in conversations(said)] == ["like [image/png]"] * 2
    assert [message.text for message in messages(said)] == ["like [image/png]"] * 2


@pytest.mark.parametrize(
    ("entry", "reasoning", "answer"),
    [
        (Assistant(thinking=" why ", text="yes"), "why", "yes"),
        (Assistant(text="<think>\nwhy\n</think>\nyes"), "why", "yes"),
        (Assistant(text="<REASONING_SCRATCHPAD>why</REASONING_SCRATCHPAD>yes"), "why", "yes"),
        (Assistant(text="So: <REASONING_SCRATCHPAD>why</REASONING_SCRATCHPAD> yes"), "why", "So:  yes"),
        (Assistant(text="<think>cut off in the middle"), "cut off in the middle", ""),
        (Assistant(text="<think>\n</think>\nyes"), "", "yes"),
        (Assistant(text="the tag `<think>` opens it"), "", "the tag `<think>` opens it"),
        (Assistant(thinking="why", text="<think>\nis a tag\n</think>"), "why", "<think>\nis a tag\n</think>"),
    ],
)
def test_reasoning_in_every_form(entry: Assistant, reasoning: str, answer: str) -> None:
    assert split_reasoning(entry) == (reasoning, answer)


def test_padding_never_counts_and_hidden_reasoning_is_marked() -> None:
    padded = answered("p", thinking="", text="<think>\n</think>\nyes", call=None)
    assert judge(padded).reason == "no_reasoning"  # type: ignore[union-attr]
    hidden = RolloutResult(
        state="completed",
        entries=(User(content=(Text("p"),)), Assistant(text="yes", usage=Usage(output=50, reasoning=40))),
    )
    assert judge(hidden) is None
    row = build_row(record(hidden), OFFERED, 10)
    assert row["hidden_reasoning"] is True and row["reasoning_stats"]["turns_with_hidden_reasoning"] == 1
    assert row["conversations"][1]["value"] == "<think>\n</think>\nyes"


def test_reasoning_statistics_count_turns() -> None:
    stats = reasoning_stats([Assistant(thinking="a"), Assistant(text="b")])
    assert (stats.total_assistant_turns, stats.turns_with_reasoning, stats.turns_without_reasoning) == (2, 1, 1)


def test_the_hallucination_filter_looks_at_calls_against_what_was_offered() -> None:
    rejection = judge(answered("p", call="todo"))
    assert rejection is not None and rejection.reason == "hallucinated_tool" and "'todo'" in rejection.detail
    assert judge(answered("p", call="todo", tools=("todo",))) is None


@pytest.mark.fault("B103")
def test_a_row_that_could_not_be_read_back_is_rejected_and_tool_output_with_tags_is_not() -> None:
    rejection = judge(answered("p", thinking="then write </think> and go on"))
    assert rejection is not None and rejection.reason == "ambiguous_tags"
    output = "</tool_response></think><|im_end|>"
    result = answered("p", output=output)
    assert judge(result) is None
    row = json.loads(encode_json(build_row(record(result), OFFERED, 10)))
    assert row["conversations"][2]["value"] == output
    assert decode_record(encode_record(record(result))).result == result


@pytest.mark.fault("B104")
def test_an_empty_end_or_a_malformed_call_is_a_failure() -> None:
    assert outcome(answered("p", text="", call=None))[:2] == ("failed", "empty_answer")
    assert outcome(failed("malformed_response"))[:2] == ("failed", "malformed_response")
    assert build_row(record(failed("malformed_response")), OFFERED, 10)["completed"] is False


def test_a_row_ended_by_its_turns_or_by_invalid_calls_is_not_completed() -> None:
    assert build_row(record(answered("p", state="exhausted")), OFFERED, 10)["completed"] is False
    row = build_row(record(answered("p", partial=True)), OFFERED, 10)
    assert (row["completed"], row["partial"]) == (False, True)


@pytest.mark.fault("B127")
def test_odd_characters_make_one_valid_line_and_cyrillic_is_readable() -> None:
    text = "± 😀 \ud83d \x00 \u2028 Привет"
    line = encode_record(record(answered("p", text=text, output=text)))
    assert line.count(b"\n") == 1 and "Привет".encode() in line and "\ufffd".encode() in line
    row = encode_json(build_row(decode_record(line), OFFERED, 10))
    assert len(row.decode("utf-8").split("\n")) == 1


@pytest.mark.fault("B112")
def test_children_have_rows_of_their_own_linked_by_ids() -> None:
    child = ChildRecord(
        task_id="sa-1", parent_id="row_1", goal="sub", entries=(User(content=(Text("sub"),)),), usage=Usage(input=5)
    )
    (row,) = child_rows(record(answered("p", children=(child,))))
    assert (row["prompt_index"], row["task_id"], row["parent_id"]) == (42, "sa-1", "row_1")
    assert row["tokens"] == {"input": 5, "output": 0} and row["conversations"][0]["value"] == "sub"


def test_the_think_block_leads() -> None:
    assert gpt_value("why", "yes") == "<think>\nwhy\n</think>\nyes"
    assert gpt_value("", "") == "<think>\n</think>"


def test_arguments_stay_objects() -> None:
    entry = Assistant(text="", calls=(ToolCall(id="a", name="t", arguments={"x": [1, {"y": None}]}),))
    assert conversations([entry])[0]["tool_calls"] == [{"name": "t", "arguments": {"x": [1, {"y": None}]}}]
    assert spec("t").name == "t"
