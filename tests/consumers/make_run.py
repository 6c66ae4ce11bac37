"""Write a run that is hard to load, and its exports: `python -m tests.consumers.make_run FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec

from hermes.batch.again import merge_again
from hermes.batch.export.groups import GroupOptions
from hermes.batch.export.job import ExportOptions, export_run
from hermes.batch.rollout import RolloutResult
from hermes.core.messages import Assistant, Text, ToolCall, ToolResult, User
from tests.batch.export.runs import record, write_run
from tests.batch.fakes import answered, spec

#: Rows without a call that together exceed the 10 MiB from which a loader guesses the columns.
PLAIN = 1_200
TEXT = "word " * 1_800


def with_call(number: int, arguments: dict[str, Any], output: str) -> RolloutResult:
    entries = (
        User(content=(Text(f"task {number} и 漢字 🙂"),)),
        Assistant(
            text="I will look.",
            thinking="plan\nтак",
            calls=(
                ToolCall(id="call_0", name="terminal", arguments=arguments),
                ToolCall(id="call_0", name="read_file", arguments={"path": "a"}),
            ),
        ),
        ToolResult(position=1, index=0, call_id="call_0", name="terminal", content=(Text(output),)),
        ToolResult(position=1, index=1, call_id="call_0", name="read_file", content=(Text("file"),)),
        Assistant(text="done", thinking="so"),
    )
    return RolloutResult(
        state="completed", entries=entries, model="fake-model", tools=(spec("terminal"), spec("read_file"))
    )


LATE = [
    {"command": "ls"},
    {"command": ["ls", "-l"]},
    {"command": 5, "late_key": {"deep": [1, 2.5, None]}},
    {},
    {"when": "2026-06-15T10:00:00", "text": '</tool_call> "quoted" \n и 🙂'},
    {"big": 2**70, "nul": "a\x00b", "sep": "\u2028"},
]


def main(folder: Path) -> None:
    records = [record(answered(f"p{i}", text=TEXT, call=None), i) for i in range(PLAIN)]
    records += [
        record(with_call(PLAIN + i, arguments, "2026-06-15T10:00:00" if i % 2 else "cut \ud83d emoji"), PLAIN + i)
        for i, arguments in enumerate(LATE * 4)
    ]
    source = write_run(folder, records, name="big")
    merge_again(folder, "big", None)
    for name in ("sharegpt", "hermes", "openai", "llamafactory", "trees"):
        report = export_run(source, name, folder / f"{name}.jsonl", ExportOptions())
        print(f"{report.rows} rows of {name}; lost: {report.losses or 'nothing'}")
    export_run(source, "sharegpt", folder / "typed.jsonl", ExportOptions(arguments="json"))
    export_run(source, "parquet", folder / "typed.parquet", ExportOptions())
    scored = [
        msgspec.structs.replace(item, head=msgspec.structs.replace(item.head, score=score))
        for index in range(2)
        for item, score in (
            (record(with_call(index, {"command": f"echo {rollout}"}, "TOOL-OUTPUT"), index, rollout), score)
            for rollout, score in enumerate((1.0, 1.0, 0.0, 0.25))
        )
    ]
    groups = write_run(folder, scored, rollouts=4, name="groups")
    merge_again(folder, "groups", None)
    export_run(groups, "dpo", folder / "dpo.jsonl", ExportOptions(groups=GroupOptions()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
