"""`hermes.AIAgent`: one conversation a call, against the loopback server and scripted models."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import hermes
from hermes.core.errors import UsageError
from hermes.testing.faults import bad_key
from hermes.testing.scripted import ScriptedModel, call, hang, reply
from hermes.testing.server import serve_in_thread


def agent(model: ScriptedModel, tmp_path: Path, **more: object) -> hermes.AIAgent:
    return hermes.AIAgent(model=model, workspace=str(tmp_path), memory=True, **more)  # type: ignore[arg-type]


def test_a_conversation_with_a_tool_over_the_wire(tmp_path: Path) -> None:
    steps = [reply(calls=[call("terminal", command="echo привет")]), reply("It printed привет.")]
    with (
        serve_in_thread(steps) as server,
        hermes.AIAgent(
            model="test-model",
            base_url=server.base_url,
            api_key="sk-test-12345678",
            max_turns=5,
            enabled_toolsets=["terminal"],
            quiet_mode=True,
            ephemeral_system_prompt="Speak like a pirate.",
            workspace=str(tmp_path),
        ) as made,
    ):
        answer = made.run_conversation("print it", task_id="first")
    assert answer["final_response"] == "It printed привет."
    assert answer["completed"] is True and answer["api_calls"] == 2
    assert answer["input_tokens"] == 20 and answer["output_tokens"] == 10
    assert [message["role"] for message in answer["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert "привет" in answer["messages"][2]["content"]
    assert "pirate" in server.requests[0].system and "pirate" not in str(answer["messages"])
    assert set(server.requests[0].tools) == {"terminal", "process"}
    assert server.requests[0].key == "sk-test-12345678"


def test_history_goes_on_and_chat_remembers_nothing(tmp_path: Path) -> None:
    first = reply(calls=[call("terminal", command="true", call_id="c1")])
    model = ScriptedModel(steps=[first, reply("one"), reply("two"), reply("three")])
    with agent(model, tmp_path) as made:
        first = made.run_conversation("first", system_message="Be brief.")
        second = made.run_conversation("second", conversation_history=first["messages"])
        assert made.chat("alone") == "three"
    assert "Be brief." in model.requests[0].system and "Be brief." not in model.requests[2].system
    assert [message["role"] for message in second["messages"]] == [
        *(message["role"] for message in first["messages"]),
        "user",
        "assistant",
    ]
    assert second["messages"][:4] == first["messages"]
    assert len(model.requests[3].entries) == 1
    model.assert_complete()


def test_a_failed_model_is_an_answer(tmp_path: Path) -> None:
    with serve_in_thread(lambda request: bad_key()) as server:
        with hermes.AIAgent("m", base_url=server.base_url, api_key="sk-wrong-0000000", memory=True) as made:
            answer = made.run_conversation("hello")
    assert answer["completed"] is False and answer["failed"] is True
    assert "Incorrect API key" in answer["error"] and "sk-wrong" not in answer["error"]
    assert answer["final_response"] is None


def test_the_cap_on_turns_is_no_completion(tmp_path: Path) -> None:
    step = reply(calls=[call("terminal", command="true")])
    model = ScriptedModel(steps=[step, step, reply("so far")])
    with agent(model, tmp_path, max_iterations=2) as made:
        answer = made.run_conversation("go")
    assert answer["completed"] is False and answer["exit_reason"] == "max_iterations"
    assert answer["final_response"] == "so far" and "failed" not in answer


def test_children_are_waited_for_and_counted(tmp_path: Path) -> None:
    model = ScriptedModel(
        scripts={
            "child": [reply("child's report")],
            "parent": [reply(calls=[call("delegate_task_async", goal="child work")]), reply("wait"), reply("all done")],
        }
    )
    with agent(model, tmp_path) as made:
        answer = made.run_conversation("parent")
    assert answer["final_response"] == "all done"
    assert answer["input_tokens"] == 40, "the child's tokens are part of it"


def test_several_threads_share_one_agent(tmp_path: Path) -> None:
    model = ScriptedModel(scripts={f"word{n};": [reply(f"answer {n}")] for n in range(8)})
    with agent(model, tmp_path) as made, ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda n: made.chat(f"word{n};"), range(8)))
    assert answers == [f"answer {n}" for n in range(8)]


def test_interrupt_from_another_thread(tmp_path: Path) -> None:
    asked = threading.Event()

    def step(request: object) -> object:
        asked.set()
        return hang()

    made = agent(ScriptedModel(steps=[step, reply("again")]), tmp_path)
    assert made.interrupt() is False

    def press() -> None:
        asked.wait(100)
        made.interrupt()

    presser = threading.Thread(target=press)
    presser.start()
    answer = made.run_conversation("think")
    presser.join()
    assert answer["interrupted"] is True and answer["completed"] is False
    assert made.chat("and now?") == "again"
    made.close()
    made.close()


def test_agents_may_share_a_runtime(tmp_path: Path) -> None:
    model = ScriptedModel(scripts={"one": [reply("1")], "two": [reply("2")]})
    with hermes.open(model=model, memory=True, workspace=str(tmp_path)) as shared:
        assert hermes.AIAgent(runtime=shared).chat("one") == "1"
        assert hermes.AIAgent(runtime=shared, max_turns=3).chat("two") == "2"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([{"role": "robot", "content": "x"}], "role 'robot'"),
        (["text"], "has to be an object"),
        ([{"role": "tool", "tool_call_id": "c9", "content": "x"}], "answers no call"),
        ([{"role": "user", "content": 7}], "content has to be"),
        ([{"role": "assistant", "tool_calls": [{"id": "c"}]}], "no function"),
    ],
)
def test_a_history_that_is_none_is_refused(given: list[object], words: str, tmp_path: Path) -> None:
    with agent(ScriptedModel(), tmp_path) as made, pytest.raises(UsageError, match=words):
        made.run_conversation("go", conversation_history=given)  # type: ignore[arg-type]


def test_wrong_arguments_are_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="at least 1"):
        hermes.AIAgent(max_turns=0)
    with pytest.raises(UsageError, match="unknown option 'modle'"):
        hermes.open(modle="x")
    with pytest.raises(UsageError, match="list of names"):
        hermes.open(toolsets="terminal")
    with agent(ScriptedModel(), tmp_path) as made, pytest.raises(UsageError, match="goal is required"):
        made.chat("  ")
    with agent(ScriptedModel(), tmp_path) as made, pytest.raises(UsageError, match="goal is required"):
        made.chat(None)  # type: ignore[arg-type]


def test_the_package_is_light_until_it_is_used() -> None:
    code = (
        "import sys, hermes; hermes.__version__; "
        "heavy = [m for m in ('anyio', 'aiohttp', 'msgspec', 'sqlite3', 'hermes.api') if m in sys.modules]; "
        "assert not heavy, heavy; hermes.AIAgent; assert 'hermes.api' in sys.modules; "
        "assert 'AIAgent' in dir(hermes)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="nothing_like_it"):
        getattr(hermes, "nothing_like_it")  # noqa: B009  the attribute is the subject


def test_a_program_that_never_closes_ends_all_the_same(tmp_path: Path) -> None:
    code = (
        "import hermes\n"
        "from hermes.testing.scripted import ScriptedModel, reply\n"
        "print(hermes.AIAgent(model=ScriptedModel(steps=[reply('fine')])).chat('hi'))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "fine\n", "")
