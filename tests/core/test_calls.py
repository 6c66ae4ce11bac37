"""Answering the calls of one reply: limits, order, and sizes as a provider counts them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from hermes.compose import conversation_spec
from hermes.core.compaction import estimate_entries
from hermes.core.limits import Limits
from hermes.core.messages import Assistant, ToolCall, ToolResult, plain_text
from hermes.testing.clock import VirtualClock
from hermes.testing.lab import open_lab
from hermes.testing.scripted import ScriptedModel, call, reply


@pytest.mark.anyio
@pytest.mark.fault("B129")
async def test_a_limit_on_calls_counts_before_parallel_calls_start(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    """Of eight calls under a limit of six the first six run; each of the others is answered, and none runs."""
    calls = [call("terminal", command=f"echo ran > ran{n}") for n in range(8)]
    model = ScriptedModel("m", [reply(calls=calls), reply("over")])
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        spec, _ = conversation_spec(lab.assembly, goal="go", interactive=False, workspace=str(tmp_path))
        limited = msgspec.structs.replace(spec, limits=Limits(calls=6))
        await lab.runtime.result(await lab.runtime.start(limited))
    results = [entry for entry in model.requests[1].entries if isinstance(entry, ToolResult)]
    assert [entry.index for entry in results] == list(range(8))
    refused = [entry.index for entry in results if "limit on tool calls" in plain_text(entry.content)]
    assert refused == [6, 7]
    assert sorted(path.name for path in tmp_path.glob("ran*")) == [f"ran{n}" for n in range(6)]


#: What the tokenizer of the local model (SmolLM2, 49,152 tokens) counts for ten calls of this shape, each written as
#: `<tool_call>\n{"name": "read_file", "arguments": {"path": "src/0.py"}}\n</tool_call>`, joined by line breaks.
COUNTED = 349


@pytest.mark.fault("B128")
def test_the_estimate_counts_the_envelope_of_calls() -> None:
    """A reply of ten short calls is mostly envelope, and still estimated within a fifth."""
    calls = tuple(
        ToolCall(id=f"call_{n}", name="read_file", arguments={"path": f"src/{n}.py"}, raw=f'{{"path": "src/{n}.py"}}')
        for n in range(10)
    )
    assert estimate_entries((Assistant(calls=calls),)) == pytest.approx(COUNTED, rel=0.2)
