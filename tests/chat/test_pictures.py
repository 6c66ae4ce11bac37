"""Pictures that a message names: which go along, what is said of the others, and that they stay what they are."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

import pytest

from hermes.chat.attaching import MOST_PICTURE, MOST_PICTURES, Attached, Sight, attached
from hermes.chat.sessions_read import said
from hermes.core.codec import encode_json
from hermes.core.messages import Image, Steer, Text, ToolResult, User, plain_text, viewable
from hermes.core.model import ModelProfile
from hermes.credentials.redact import Redactor
from hermes.providers.profiles import profile_of
from hermes.runtime.carrying import carried, packed, pictures, spoken
from hermes.testing.clock import VirtualClock
from hermes.testing.scripted import ScriptedModel, call, reply
from tests.cli.test_interactive import desk

pytestmark = pytest.mark.anyio

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
SEEING = Sight("eye-1", True)


async def of(text: str, folder: Path, sight: Sight = SEEING) -> Attached:
    private = str(folder / "home")
    return await attached(text, str(folder), lambda found: found, private=private, workspaces=private, sight=sight)


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        ("a.png", PNG, "image/png"),
        ("a.jpg", b"\xff\xd8\xff\xe0\0\x10JFIF", "image/jpeg"),
        ("a.gif", b"GIF89a\1\0\1\0", "image/gif"),
        ("a.webp", b"RIFF\x10\0\0\0WEBPVP8 ", "image/webp"),
        ("named-wrongly.txt", PNG, "image/png"),
    ],
)
async def test_a_picture_goes_along_as_what_it_is(tmp_path: Path, name: str, data: bytes, kind: str) -> None:
    (tmp_path / name).write_bytes(data)
    (tmp_path / "note.txt").write_text("words")
    found = await of(f"look at @{name} and @note.txt", tmp_path)
    assert found.pictures == (Image(media_type=kind, data=base64.b64encode(data).decode()),)
    said, file, picture = found.content
    assert said == Text(f"look at @{name} and @note.txt") and isinstance(file, Text) and "words" in file.text
    assert picture == found.pictures[0]
    assert found.notes == (f"attached: {name} (picture, {len(data)} B), note.txt (1 line)",)


@pytest.mark.parametrize(
    ("sight", "why"),
    [
        (Sight("blind-1", False), "! a.png was not sent: blind-1 looks at no pictures"),
        (Sight("new-1.5"), r"hermes config set 'models.new-1\.5.images' true"),
    ],
)
async def test_a_model_that_does_not_look_is_named(tmp_path: Path, sight: Sight, why: str) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    found = await of("see @a.png", tmp_path, sight)
    assert found.content == (Text("see @a.png"),) and why in found.notes[0]


async def test_sizes_have_a_limit_each_and_together(tmp_path: Path) -> None:
    (tmp_path / "big.png").write_bytes(PNG + b"\0" * MOST_PICTURE)
    found = await of("see @big.png", tmp_path)
    assert found.pictures == () and "a picture may have" in found.notes[0]
    for number in range(4):
        (tmp_path / f"{number}.png").write_bytes(PNG + b"\0" * (MOST_PICTURE - len(PNG)))
    found = await of("see @0.png @1.png @2.png @3.png", tmp_path)
    assert len(found.pictures) == MOST_PICTURES // MOST_PICTURE == 3
    assert "the pictures of one message may have" in found.notes[-1] and "3.png" in found.notes[-1]


async def test_a_program_or_a_script_is_no_picture(tmp_path: Path) -> None:
    (tmp_path / "a.svg").write_text("<svg/>")
    (tmp_path / "a.bin").write_bytes(b"\x7fELF\0\0")
    found = await of("see @a.svg @a.bin", tmp_path)
    assert found.pictures == () and "<svg/>" in found.text and "a.bin was not sent: it is no text" in found.notes[-1]


def _noise(size: int) -> bytes:
    """Bytes without any order, the same each time."""
    return b"".join(hashlib.sha256(str(number).encode()).digest() for number in range(size // 32))


def test_the_data_of_a_picture_is_never_taken_for_a_key() -> None:
    like_a_key = base64.b64encode(PNG[:12] + _noise(960)).decode() + "AIza" + "A" * 36
    secret = "swordfish-0123456789"
    content = (Text(f"the key is {secret}"), Image(media_type="image/png", data=like_a_key), Text(f"again {secret}"))
    stored = Redactor({"key": secret}).json_bytes(encode_json(content))
    assert secret.encode() not in stored and stored.count(b"[redacted:key]") == 2
    assert json.loads(stored)[1] == {"type": "image", "media_type": "image/png", "data": like_a_key}


def test_what_only_says_that_it_is_a_picture_is_looked_into() -> None:
    secret = "swordfish-0123456789"
    for data in (secret, f"AAAA{secret.replace('-', '')}"):
        known = Redactor({"key": secret, "other": data})
        assert data.encode() not in known.json_bytes(f'{{"media_type":"image/png","data":"{data}"}}'.encode())


def test_a_stored_message_is_read_as_it_was_said() -> None:
    picture = Image(media_type="image/png", data=base64.b64encode(PNG).decode())
    content = (Text("look"), picture)
    stored = packed(content, lambda data: data)
    assert carried(stored) == content and spoken(carried(stored)) == "look"
    assert packed((Text("only "), Text("words")), lambda data: data) == "only words"
    assert carried("only words") == (Text("only words"),)
    assert carried("\x1eparts:nonsense") == (Text("\x1eparts:nonsense"),)


def test_a_model_that_looks_at_nothing_reads_a_word_for_each() -> None:
    picture = Image(media_type="image/png", data="AAAA")
    entries = (
        User(content=(Text("look"), picture)),
        ToolResult(call_id="c", name="screenshot", content=(picture,), position=0, index=0),
        User(content=(Text("plain"),)),
    )
    assert viewable(entries, True) is entries and viewable(entries, None) is entries
    user, result, plain = viewable(entries, False)
    assert isinstance(user, User) and plain_text(user.content) == "look [image/png, not shown]"
    assert isinstance(result, ToolResult) and plain_text(result.content) == " [image/png, not shown]"
    assert plain is entries[2] and viewable(entries, False)[:1] == (user,), "the same each time"


@pytest.mark.parametrize(
    ("name", "images"),
    [
        ("anthropic/claude-sonnet-4.6", True), ("gpt-4o-mini", True), ("google/gemini-2.5-pro", True), ("o3", True),
        ("qwen2.5-vl-72b", True), ("o3-mini", False), ("deepseek-chat", False), ("claude-2.1", False), ("mine", None),
    ],
)  # fmt: skip
def test_what_is_known_of_models(name: str, images: bool | None) -> None:
    assert profile_of(name).images is images
    assert profile_of(name, {"images": True}).images is True


async def test_in_a_conversation_and_when_it_is_taken_up_again(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(PNG + name.encode())
    profile = ModelProfile(images=True)
    model = ScriptedModel("m", [reply("a cat"), reply("a dog")], profile=profile)
    async with desk(model, tmp_path, virtual_clock, memory=False) as at:
        at.type("what is on @a.png")
        await at.sees("attached: a.png (picture, ", "a cat")
        await at.quiet()
        at.type("and on @b.png")
        await at.sees("attached: b.png (picture, ", "a dog")
        await at.quiet()
        session = at.chat.last_session
    shown = [part for entry in model.requests[1].entries if isinstance(entry, User) for part in entry.content]
    pictures = [base64.b64decode(part.data) for part in shown if isinstance(part, Image)]
    assert pictures == [PNG + b"a.png", PNG + b"b.png"]
    again = ScriptedModel("m", [reply("both")], profile=profile)
    async with desk(again, tmp_path, virtual_clock, memory=False, resume=session) as at:
        await at.sees("you: what is on @a.png", "model: a cat")
        at.type("compare them")
        await at.sees("both")
        await at.quiet()
    kept = [part for entry in again.requests[0].entries if isinstance(entry, User) for part in entry.content]
    assert [base64.b64decode(part.data) for part in kept if isinstance(part, Image)] == pictures


@pytest.mark.parametrize("sees", [True, False])
async def test_a_picture_during_a_turn_goes_along_with_the_correction(
    tmp_path: Path, virtual_clock: VirtualClock, sees: bool
) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    step = reply(calls=[call("terminal", command="true")], delay=5.0)
    model = ScriptedModel("m", [step, reply("one"), reply("two")], profile=ModelProfile(images=True))
    async with desk(model, tmp_path, virtual_clock, **{"display.busy_input_mode": "steer"}) as at:
        at.type("begin")
        await at.until(lambda: at.chat.turn_runs)
        at.type("see @a.png")
        await at.sees("attached: a.png", "reads this at its next step", "one")
        await at.quiet()
        session = at.chat.session
        assert session is not None
        (row,) = await at.lab.runtime.store.inbox(session.task.id)
        assert [part.data for part in pictures(carried(row.text))] == [base64.b64encode(PNG).decode()]
    (steer,) = [entry for entry in viewable(model.requests[1].entries, sees) if isinstance(entry, Steer)]
    if sees:
        assert steer.text == "see @a.png" and base64.b64decode(steer.pictures[0].data) == PNG
    else:
        assert steer.text == "see @a.png [image/png, not shown]" and not steer.pictures


def test_an_exported_conversation_says_which_pictures_there_were() -> None:
    picture = Image(media_type="image/png", data=base64.b64encode(b"x" * 12_300).decode())
    entry = User(content=(Text("look at @plan.png"), picture))
    assert said(entry, full=True) == [("you", "look at @plan.png[picture: image/png, 12.3 KB]")]
