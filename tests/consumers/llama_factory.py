"""LLaMA-Factory's converter on `llamafactory` and `hermes` rows: run in an environment that has it."""

from __future__ import annotations

import importlib.machinery
import json
import os
import sys
import types
from pathlib import Path

os.environ["DISABLE_VERSION_CHECK"] = "1"
# Its plugins import it, for sound only.
sound = types.ModuleType("torchaudio")
sound.__spec__ = importlib.machinery.ModuleSpec("torchaudio", None)
sys.modules.setdefault("torchaudio", sound)

from llamafactory.data.converter import SharegptDatasetConverter  # noqa: E402
from llamafactory.data.formatter import FunctionFormatter  # noqa: E402
from llamafactory.data.parser import DatasetAttr  # noqa: E402


def rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def main(folder: Path) -> None:
    info = json.loads((folder / "dataset_info.json").read_text())
    (entry,) = info.values()
    attributes = DatasetAttr("file", dataset_name=entry["file_name"])
    attributes.join(entry)
    convert = SharegptDatasetConverter(attributes, None)
    calls = 0
    formatter = FunctionFormatter(slots=["{{content}}"], tool_format="default")
    for row in rows(folder / "llamafactory.jsonl"):
        found = convert(row)
        assert found["_prompt"] and found["_response"], row["prompt_index"]
        assert found["_tools"] == row["tools"]
        for turn in [*found["_prompt"], *found["_response"]]:
            if turn["role"] == "function":
                written = "".join(formatter.apply(content=turn["content"]))
                parsed = json.loads(turn["content"])
                for call in parsed if isinstance(parsed, list) else [parsed]:
                    assert call["name"] in written
                    calls += 1
    assert calls == 48, calls
    print(f"llamafactory: every row of llamafactory.jsonl converted, {calls} calls rendered")
    tagged = DatasetAttr("file", dataset_name="hermes.jsonl")
    tags = {**entry["tags"], "observation_tag": "tool", "system_tag": "system", "function_tag": "function_call"}
    tagged.join({"formatting": "sharegpt", "columns": {"messages": "conversations"}, "tags": tags})
    convert = SharegptDatasetConverter(tagged, None)
    blocks = 0
    for row in rows(folder / "hermes.jsonl"):
        found = convert(row)
        assert found["_prompt"] and found["_response"] and "<tools>" in found["_system"], row["prompt_index"]
        blocks += sum(turn["content"].count("<tool_call>") for turn in found["_prompt"])
    assert blocks == 48, blocks
    print(f"llamafactory: every row of hermes.jsonl converted, {blocks} calls in the text")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
