"""Files that a message names: which go along, how much of them, and what is said of those that do not."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import pytest

from hermes.chat.attaching import MOST_FILE, MOST_FILES, Attached, attached, without_files
from hermes.core.messages import User, plain_text
from hermes.testing.clock import VirtualClock
from hermes.testing.scripted import ScriptedModel, reply
from tests.cli.test_interactive import desk

pytestmark = pytest.mark.anyio

SECRET = "swordfish-0123456789"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir(exist_ok=True)
    (tmp_path / "home" / ".env").write_text("KEY=1")
    (tmp_path / "a.py").write_text("print('привет')\n")
    (tmp_path / "two words.txt").write_text("spaced")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
    (tmp_path / "latin.txt").write_bytes("é".encode("latin-1"))
    return tmp_path


async def of(text: str, folder: Path) -> Attached:
    home = folder / "home"
    return await attached(
        text,
        str(folder),
        lambda found: found.replace(SECRET, "[hidden]"),
        private=str(home),
        workspaces=str(home / "workspaces"),
    )


async def test_a_file_goes_along_once_however_often_it_is_named(folder: Path) -> None:
    found = await of('look at @a.py, (@a.py) and @"two words.txt".', folder)
    assert found.text.startswith("look at @a.py, (@a.py) and") and found.text.count("print('привет')") == 1
    assert '<attached-file path="a.py">' in found.text and "spaced\n</attached-file>" in found.text
    assert found.notes == ("attached: a.py (1 line), two words.txt (1 line)",)
    assert without_files(found.text) == 'look at @a.py, (@a.py) and @"two words.txt".'


@pytest.mark.parametrize(
    "text", ["write to me@a.py", "ask @nobody", "the folder @home", "@", "@\0", "@~\0/a", "no name"]
)
async def test_what_names_no_file_is_a_word(folder: Path, text: str) -> None:
    assert await of(text, folder) == Attached(text)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("picture.png", "looks at pictures is not known"),
        ("latin.txt", "it is no text"),
        ("home/.env", "keys are kept in"),
    ],
)
async def test_what_cannot_be_sent_is_said(folder: Path, name: str, why: str) -> None:
    found = await of(f"see @{name}", folder)
    assert found.text == f"see @{name}" and why in found.notes[0] and name in found.notes[0]


async def test_a_way_round_to_the_keys_is_seen(folder: Path) -> None:
    await anyio.Path(folder / "link").symlink_to(folder / "home" / ".env")
    assert "keys are kept in" in (await of("see @link", folder)).notes[0]


async def test_files_elsewhere_are_not_sent(folder: Path) -> None:
    nowhere = str(folder / "nowhere")
    found = await attached("see @../a.py", str(folder / "home"), str, private=nowhere, workspaces=nowhere)
    assert found.text == "see @../a.py" and "it is not in" in found.notes[0]


async def test_a_workspace_that_lies_beside_the_keys_is_work(folder: Path) -> None:
    work = folder / "home" / "workspaces" / "main_1"
    work.mkdir(parents=True)
    (work / "b.py").write_text("b = 1")
    (work / "link").symlink_to(folder / "home" / ".env")
    found = await of("see @home/workspaces/main_1/b.py and @home/workspaces/main_1/link", folder)
    assert "b = 1" in found.text and "KEY" not in found.text and "keys are kept in" in found.notes[1]


async def test_what_is_over_the_number_of_files_is_said(folder: Path) -> None:
    for number in range(MOST_FILES + 3):
        (folder / f"{number}.txt").write_text("x")
    found = await of(" ".join(f"@{number}.txt" for number in range(MOST_FILES + 3)), folder)
    assert found.text.count("<attached-file") == MOST_FILES
    assert found.notes[-1] == f"! only the first {MOST_FILES} files that are named are sent, not {MOST_FILES}.txt"


async def test_a_pipe_is_not_waited_for(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    assert await of("see @pipe", folder) == Attached("see @pipe")


async def test_secrets_are_hidden_and_a_large_file_is_cut(folder: Path) -> None:
    (folder / "big.txt").write_text(f"{SECRET}\n" + "я" * 2 * MOST_FILE)
    (folder / "key.txt").write_text(SECRET)
    found = await of("@big.txt @key.txt", folder)
    assert SECRET not in found.text and found.text.count("[hidden]") == 2 and len(found.text) < MOST_FILE + 500
    assert "read_file shows the rest" in found.text and "its beginning" in found.notes[0]
    assert found.text.endswith('<attached-file path="key.txt">\n[hidden]\n</attached-file>')


async def test_files_together_have_a_limit(folder: Path) -> None:
    for number in range(5):
        (folder / f"{number}.txt").write_text("x" * MOST_FILE)
    found = await of(" ".join(f"@{number}.txt" for number in range(5)), folder)
    assert found.text.count("x") < 4 * MOST_FILE and "the files before it have" in found.notes[-1]


async def test_in_a_conversation_and_when_it_is_taken_up_again(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    (tmp_path / "a.py").write_text("print(1)\n")
    model = ScriptedModel("m", [reply("it prints"), reply("no more")])
    async with desk(model, tmp_path, virtual_clock, memory=False) as at:
        at.type("what is @a.py")
        await at.sees("attached: a.py (1 line)", "it prints")
        await at.quiet()
        at.type("and then")
        await at.sees("no more")
        await at.quiet()
        session = at.chat.last_session
    asked = model.requests[0].entries[-1]
    assert isinstance(asked, User) and "print(1)" in plain_text(asked.content)
    async with desk(ScriptedModel("m", []), tmp_path, virtual_clock, memory=False, resume=session) as at:
        text = await at.sees("you: what is @a.py", "model: it prints", "you: and then", "model: no more")
        assert "print(1)" not in text
