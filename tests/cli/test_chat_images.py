"""`hermes chat -q … --image PATH`: a question with pictures, anew, as the next input and in the background."""

from __future__ import annotations

import base64
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from hermes.testing.scripted import Reply, reply
from hermes.testing.server import Request, serve_in_thread
from tests.cli.program import Program


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


#: A picture of one grey point.
PNG = b"\x89PNG\r\n\x1a\n" + b"".join(
    (
        _chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)),
        _chunk(b"IDAT", zlib.compress(b"\0\x80")),
        _chunk(b"IEND", b""),
    )
)


@pytest.fixture
def program(tmp_path: Path) -> Program:
    made = Program(tmp_path)
    (made.folder / "снимок 1.png").write_bytes(PNG)
    (made.folder / "b.png").write_bytes(PNG + b"b")
    (made.folder / "notes.txt").write_text("no picture")
    (made.folder / "large.png").write_bytes(PNG + b"\0" * 3_750_000)
    return made


def pictures(message: dict[str, Any]) -> list[bytes]:
    parts = message["content"] if isinstance(message["content"], list) else []
    urls = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
    return [base64.b64decode(url.removeprefix("data:image/png;base64,")) for url in urls]


def answer(request: Request) -> Reply:
    return reply(f"{sum(len(pictures(message)) for message in request.messages)} pictures")


def test_pictures_go_along_with_a_question_and_with_the_next(program: Program) -> None:
    with serve_in_thread(answer) as server:
        program.use(server)
        program.run("config", "set", "models.test-model.images", "true")
        asked = ("-m", "test-model", "chat", "-q", "What is it?")
        first = program.run(*asked, "--image", "снимок 1.png", "--image", "b.png")
        assert (first.code, first.out.strip()) == (0, "2 pictures"), first.err
        again = program.run("chat", "--resume", "-q", "And this?", "--image", "b.png")
        assert (again.code, again.out.strip()) == (0, "3 pictures"), again.err
        assert [pictures(message) for message in server.requests[0].messages if message["role"] == "user"] == [
            [PNG, PNG + b"b"]
        ]
        session = program.run(*asked, "--detach", "--image", "b.png").out.strip()
        collected = program.run("tasks", "collect", session, "--timeout", "60")
        program.run("host", "--stop")
        assert "1 pictures" in collected.out, collected.err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("absent.png", "--image absent.png: No such file"),
        (".", "--image .: it is no file"),
        ("notes.txt", "--image notes.txt: it is no PNG, JPEG, GIF or WebP picture"),
        ("large.png", "--image: large.png was not sent: it has 3.8 MB, and a picture may have"),
    ],
)
def test_what_is_no_picture_is_refused_before_anything_is_asked(program: Program, given: str, said: str) -> None:
    with serve_in_thread(answer) as server:
        program.use(server)
        program.run("config", "set", "models.test-model.images", "true")
        ran = program.run("-m", "test-model", "chat", "-q", "What is it?", "--image", given)
        assert ran.code == 2 and said in ran.err
        assert not server.requests


def test_a_model_that_may_not_look_gets_no_picture(program: Program) -> None:
    with serve_in_thread(answer) as server:
        program.use(server)
        ran = program.run("-m", "test-model", "chat", "-q", "What is it?", "--image", "b.png")
        assert ran.code == 2 and "hermes config set 'models.test-model.images' true" in ran.err
        assert not server.requests


def test_a_conversation_is_told_how_pictures_go_along_there(program: Program) -> None:
    ran = program.run("chat", "--cli", "--image", "b.png")
    assert ran.code == 2 and "--image belongs to a single question" in ran.err and "@path" in ran.err
