"""Tools looked up by name: what is alike for all tasks is built for one of them when it first calls it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hermes.core.kit import Kit, LateKit, Plan
from hermes.core.scope import TaskScope
from hermes.core.tools import CallContext, Tool, ToolEnv


class Nothing(msgspec.Struct, frozen=True):
    """No arguments."""


def tool(name: str, answer: str = "") -> Tool:
    async def run(_arguments: Nothing, _context: CallContext) -> str:
        return answer

    return Tool(name=name, description=f"says {answer}", arguments=Nothing, run=run)


class Counting:
    """A toolset that notes for which task it was built."""

    label = ""
    opt_in = False
    alike = True

    def __init__(self, name: str, *tool_names: str) -> None:
        self.name = name
        self.tool_names = tool_names
        self.built: list[str] = []

    def build(self, env: ToolEnv) -> Sequence[Tool]:
        self.built.append(env.scope.task_id)
        return [tool(name, self.name) for name in self.tool_names]


def late(task_id: str, *toolsets: Counting, without: Sequence[str] = ()) -> LateKit:
    owners = {name: toolset for toolset in reversed(toolsets) for name in toolset.tool_names if name not in without}
    env = ToolEnv(scope=TaskScope(task_id=task_id, session_id="s", root_id="r"), state_dir="/nonexistent")
    return LateKit(Plan(toolsets, owners, offered=(), unsafe=frozenset()), env)


def test_of_two_tools_with_one_name_the_first_is_meant() -> None:
    kit = Kit([tool("a", "first"), tool("b"), tool("a", "second")])
    assert kit.names == ("a", "b", "a")
    found = kit.named("a")
    assert found is not None
    assert found.description == "says first"
    assert kit.named("c") is None


def test_a_toolset_is_built_when_one_of_its_tools_is_first_looked_up() -> None:
    files, web = Counting("files", "read", "write"), Counting("web", "search")
    kit = late("one", files, web)
    assert set(kit.names) == {"read", "write", "search"}
    assert kit.named("other") is None
    assert (files.built, web.built) == ([], [])
    read = kit.named("read")
    assert read is not None
    assert kit.named("read") is read
    assert kit.named("write") is not None
    assert (files.built, web.built) == (["one"], [])
    assert {found.name for found in kit} == {"read", "write", "search"}
    assert (files.built, web.built) == (["one"], ["one"])


def test_a_tool_that_the_task_is_not_to_have_is_not_found() -> None:
    files = Counting("files", "read", "write")
    kit = late("one", files, without=["write"])
    assert kit.named("read") is not None
    assert kit.named("write") is None
    assert [found.name for found in kit] == ["read"]


def test_the_first_of_two_toolsets_with_one_name_is_built_for_it() -> None:
    mine, theirs = Counting("mine", "read"), Counting("theirs", "read", "more")
    kit = late("one", mine, theirs)
    read, more = kit.named("read"), kit.named("more")
    assert read is not None
    assert more is not None
    assert (read.description, more.description) == ("says mine", "says theirs")
    assert sorted(found.description for found in kit) == ["says mine", "says theirs"]
