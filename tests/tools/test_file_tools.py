"""`read_file`, `write_file`, `patch`, `search_files`."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from hermes.core.errors import ToolError
from hermes.core.tools import Tool, ToolOutput
from hermes.tools.toolsets import FileToolset
from tests.tools.place import Place, call, tools_of

pytestmark = pytest.mark.anyio


@pytest.fixture
def work(place: Place) -> Path:
    return Path(place.workspace)


@pytest.fixture
def tools(place: Place, home: Path) -> dict[str, Tool]:
    return tools_of(FileToolset(lambda _: place, denied=[str(home / ".env")]), "t", place)


async def failed(tool: Tool, **arguments: Any) -> str:
    with pytest.raises(ToolError) as error:
        await call(tool, **arguments)
    return str(error.value)


async def test_reading_numbers_the_lines(tools: dict[str, Tool], work: Path) -> None:
    (work / "a.txt").write_bytes("eins\r\nzwei ±\n\nvier".encode())
    output = await call(tools["read_file"], path="a.txt")
    assert output.details == {"content": "1|eins\n2|zwei ±\n3|\n4|vier", "total_lines": 4, "file_size": 19}
    assert output.files_read == (str(work / "a.txt"),)


async def test_reading_pages(tools: dict[str, Tool], work: Path) -> None:
    (work / "a.txt").write_text("".join(f"{number}\n" for number in range(1, 101)))
    output = await call(tools["read_file"], path="a.txt", offset=10, limit=2)
    assert output.details["content"] == "10|10\n11|11"
    assert output.details["hint"].endswith("go on with offset=12.")
    assert "no line 101" in await failed(tools["read_file"], path="a.txt", offset=101)
    (work / "empty").write_text("")
    assert (await call(tools["read_file"], path="empty")).details["total_lines"] == 0


async def test_a_long_file_is_cut_to_the_room_that_is_left(tools: dict[str, Tool], work: Path) -> None:
    (work / "a.txt").write_text("word " * 10 + "\n" + ("x" * 100 + "\n") * 10_000)
    output = await call(tools["read_file"], room=2_000, path="a.txt", limit=5_000)
    assert len(output.details["content"]) < 6_100
    assert output.details["truncated"]
    (work / "b.txt").write_text("y" * 50_000)
    assert "48000 characters of this line cut" in (await call(tools["read_file"], path="b.txt")).details["content"]


async def test_what_cannot_be_read_is_named(tools: dict[str, Tool], work: Path) -> None:
    (work / "binary").write_bytes(b"\x7fELF\0\0")
    (work / "latin").write_bytes(b"caf\xe9")
    (work / "readme.md").write_text("x")
    os.mkfifo(work / "pipe")
    assert "binary file of 6 bytes" in await failed(tools["read_file"], path="binary")
    assert "no UTF-8 text (byte 0xe9 at 3)" in await failed(tools["read_file"], path="latin")
    assert "is a directory" in await failed(tools["read_file"], path=".")
    assert "no regular file" in await failed(tools["read_file"], path="pipe")
    assert "Near it: readme.md" in await failed(tools["read_file"], path="reedme.md")
    assert "does not exist either" in await failed(tools["read_file"], path="no/such/file")
    assert "is no path" in await failed(tools["read_file"], path=" ")


async def test_writing_makes_directories_and_keeps_the_mode(tools: dict[str, Tool], work: Path) -> None:
    output = await call(tools["write_file"], path="a/b/c.sh", content="± one\n")
    path = work / "a/b/c.sh"
    assert output.details == {"path": str(path), "bytes_written": 7, "created": True}
    assert output.files_written == (str(path),)
    path.chmod(0o755)
    output = await call(tools["write_file"], path="a/b/c.sh", content="two")
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("two", 0o755)
    assert not output.details["created"]
    assert os.listdir(path.parent) == ["c.sh"]


async def test_a_new_file_follows_the_umask(tools: dict[str, Tool], work: Path) -> None:
    old = os.umask(0o027)
    try:
        await call(tools["write_file"], path="a", content="x")
    finally:
        os.umask(old)
    assert (work / "a").stat().st_mode & 0o777 == 0o640


async def test_a_link_is_written_through(tools: dict[str, Tool], work: Path) -> None:
    (work / "real").write_text("x")
    (work / "link").symlink_to("real")
    await call(tools["write_file"], path="link", content="y")
    assert (work / "real").read_text() == "y"
    assert (work / "link").is_symlink()


async def test_what_cannot_be_written_stays_as_it_was(tools: dict[str, Tool], work: Path) -> None:
    assert "is a directory" in await failed(tools["write_file"], path=".", content="x")
    (work / "file").write_text("x")
    assert "Nothing was changed" in await failed(tools["write_file"], path="file/below", content="x")
    assert os.listdir(work) == ["file"]


@pytest.mark.parametrize("name", ["direct", "symlink", "hardlink", "dots"])
async def test_files_with_secrets_are_closed(tools: dict[str, Tool], work: Path, home: Path, name: str) -> None:
    secret = home / ".env"
    secret.write_text("KEY=hidden")
    path = {"direct": str(secret), "symlink": "s", "hardlink": "h", "dots": f"{home}/x/../.env"}[name]
    (work / "s").symlink_to(secret)
    os.link(secret, work / "h")
    for tool, more in (
        ("read_file", {}),
        ("write_file", {"content": "x"}),
        ("patch", {"old_string": "K", "new_string": "L"}),
    ):
        assert "holds credentials" in await failed(tools[tool], path=path, **more)
    found = await call(tools["search_files"], pattern="hidden", path=str(home))
    assert found.details["matches"] == []
    assert (await call(tools["search_files"], pattern="hidden")).details["matches"] == []
    assert secret.read_text() == "KEY=hidden"


async def test_patching_replaces_once(tools: dict[str, Tool], work: Path) -> None:
    (work / "a.py").write_text("one\ntwo\nthree\n")
    output = await call(tools["patch"], path="a.py", old_string="two\n", new_string="2\n")
    assert (work / "a.py").read_text() == "one\n2\nthree\n"
    assert output.details["replacements"] == 1
    assert "-two\n+2" in output.details["diff"]
    assert output.files_written == (str(work / "a.py"),)


async def test_patching_keeps_line_ends(tools: dict[str, Tool], work: Path) -> None:
    (work / "a").write_bytes(b"one\r\ntwo\r\nthree\r\n")
    await call(tools["patch"], path="a", old_string="one\ntwo", new_string="1\n2\n2b")
    assert (work / "a").read_bytes() == b"1\r\n2\r\n2b\r\nthree\r\n"


async def test_patching_refuses_what_is_not_there_once(tools: dict[str, Tool], work: Path) -> None:
    text = "def alpha():\n    return 1\n\ndef beta():\n    return 1\n"
    (work / "a.py").write_text(text)
    message = await failed(tools["patch"], path="a.py", old_string="def alfa():\n    return 1", new_string="x")
    assert "nearest text there is:\n1|def alpha():\n2|    return 1" in message
    message = await failed(tools["patch"], path="a.py", old_string="return 1", new_string="x")
    assert "2 times (lines 2, 5)" in message
    assert "is empty" in await failed(tools["patch"], path="a.py", old_string="", new_string="x")
    assert "nothing would change" in await failed(tools["patch"], path="a.py", old_string="a", new_string="a")
    assert (work / "a.py").read_text() == text
    output = await call(tools["patch"], path="a.py", old_string="return 1", new_string="return 2", replace_all=True)
    assert output.details["replacements"] == 2


async def test_a_file_changed_since_it_was_read_is_said(tools: dict[str, Tool], work: Path) -> None:
    (work / "a").write_text("one")
    await call(tools["read_file"], path="a")
    assert "warning" not in (await call(tools["write_file"], path="a", content="two")).details
    (work / "a").write_text("three, by hand")
    output = await call(tools["patch"], path="a", old_string="three", new_string="3")
    assert "changed by somebody else" in output.details["warning"]
    (work / "a").unlink()
    assert "was removed" in (await call(tools["write_file"], path="a", content="x")).details["warning"]


@pytest.mark.fault("B016")
async def test_siblings_in_one_directory_learn_of_each_other(place: Place) -> None:
    toolset = FileToolset(lambda _: place)
    one, two = tools_of(toolset, "sa-1", place), tools_of(toolset, "sa-2", place)
    assert "warning" not in (await call(one["write_file"], path="out.txt", content="from one")).details
    warning = (await call(two["write_file"], path="out.txt", content="from two, longer")).details["warning"]
    assert "written by task sa-1" in warning
    warning = (await call(one["write_file"], path="out.txt", content="again")).details["warning"]
    assert "changed by task sa-2" in warning


async def found(tools: dict[str, Tool], **arguments: Any) -> ToolOutput:
    return await call(tools["search_files"], **arguments)


async def test_searching_text(tools: dict[str, Tool], work: Path) -> None:
    (work / "b").mkdir()
    (work / "a.py").write_text("import os\nx = 1\n")
    (work / "b" / "c.md").write_text("one\nImport two\n")
    (work / "bin").write_bytes(b"import\0")
    (work / ".git").mkdir()
    (work / ".git" / "x").write_text("import")
    output = await found(tools, pattern="^import")
    assert output.details == {
        "count": 1,
        "matches": [{"path": str(work / "a.py"), "line": 1, "content": "import os"}],
    }
    output = await found(tools, pattern="import", ignore_case=True, file_glob="*.md", context=1)
    assert output.details["matches"][0]["context"] == "1|one\n2|Import two"
    assert (await found(tools, pattern="os", path="a.py")).details["count"] == 1


async def test_searching_names(tools: dict[str, Tool], work: Path) -> None:
    for name in ("b.py", "a.py", "c.txt"):
        (work / name).write_text("")
    (work / "sub").mkdir()
    (work / "sub" / "d.py").write_text("")
    (work / "loop").symlink_to(work)
    output = await found(tools, pattern="*.py", target="files")
    assert [Path(path).name for path in output.details["files"]] == ["a.py", "b.py", "d.py"]
    assert (await found(tools, pattern="sub/*", target="files")).details["files"] == [str(work / "sub" / "d.py")]


async def test_results_are_bounded_and_paged(tools: dict[str, Tool], work: Path) -> None:
    (work / "a").write_text("x\n" * 100)
    output = await found(tools, pattern="x", limit=10, offset=5)
    assert [match["line"] for match in output.details["matches"]] == list(range(6, 16))
    assert output.details["hint"].endswith("offset=15.")
    (work / "long").write_text("y" * 10_000)
    assert len((await found(tools, pattern="y")).details["matches"][0]["content"]) == 300


async def test_patterns_that_cannot_be_used_are_named(tools: dict[str, Tool]) -> None:
    assert "is no regular expression" in await failed(tools["search_files"], pattern="(")
    assert "can take for ever" in await failed(tools["search_files"], pattern="(a+)+$")
    assert "there is no" in await failed(tools["search_files"], pattern="a", path="nowhere")
    assert "is empty" in await failed(tools["search_files"], pattern="")


async def test_file_work_holds_the_clock(place: Place, work: Path) -> None:
    class Counter:
        def __init__(self) -> None:
            self.held = 0
            self.seen: list[int] = []
            self.thread = threading.get_ident()

        def hold(self) -> None:
            self.held += 1
            self.seen.append(self.held)

        def release(self) -> None:
            self.held -= 1

    counter = Counter()
    tools = tools_of(FileToolset(lambda _: place, hold=counter), "t", place)
    await call(tools["write_file"], path="a", content="x")
    assert (counter.seen, counter.held) == ([1], 0)


def test_which_may_be_repeated(tools: dict[str, Tool]) -> None:
    assert {name for name, tool in tools.items() if tool.safe_to_repeat} == {"read_file", "write_file", "search_files"}
    assert tuple(tools) == FileToolset.tool_names
