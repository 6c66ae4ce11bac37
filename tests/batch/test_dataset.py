from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path

import pytest

from hermes.batch.dataset import read_dataset
from hermes.batch.plan import plan_new
from hermes.batch.rowtable import ordinals
from hermes.core.errors import UsageError


def write(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "p.jsonl"
    path.write_bytes(data)
    return path


def test_bom_crlf_and_blank_lines_are_fine(tmp_path: Path) -> None:
    dataset = read_dataset(write(tmp_path, b'\xef\xbb\xbf{"prompt": "a"}\r\n\r\n  \n{"prompt": "b", "cwd": "/x"}'))
    assert [(row.prompt, row.line, row.cwd) for row in dataset.rows] == [("a", 1, None), ("b", 4, "/x")]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"{broken", "not JSON"),
        (b'{"text": 1}', 'no "prompt"'),
        (b'{"prompt": null}', "is null"),
        (b'{"prompt": ["a"]}', "a list"),
        (b'{"prompt": " "}', "empty"),
        (b'["prompt"]', "not an object but a list"),
        (b'{"prompt": "\xff"}', "not UTF-8"),
        (b'{"prompt": "a", "cwd": 3}', '"cwd" is a number'),
        (b'{"prompt": "a", "toolsets": [1]}', '"toolsets"'),
        (b'{"prompt": "a", "x": NaN}', "NaN"),
        (b"[" * 100_000, "nested"),
        (b"[", "a row is one line: jq -c '.[]' FILE"),
        (b'[{"prompt": "a"}, {"prompt": "b"}]', "not an object but a list; a row is one line: jq -c '.[]' FILE"),
        (b"{", "a row is one line: jq -c . FILE"),
    ],
)
def test_a_bad_line_is_named_with_file_and_number(tmp_path: Path, line: bytes, why: str) -> None:
    path = write(tmp_path, b'{"prompt": "fine"}\n' + line + b"\n")
    with pytest.raises(UsageError) as error:
        read_dataset(path)
    assert f"{path}:2: " in str(error.value) and why in str(error.value)


def test_all_bad_lines_are_named_up_to_twenty(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        read_dataset(write(tmp_path, b"{\n" * 25))
    text = str(error.value)
    assert "25 lines" in text and ":20: " in text and ":21: " not in text and "and 5 more" in text


@pytest.mark.parametrize("data", [b"", b"\n \n", b"\xef\xbb\xbf"])
def test_an_empty_file_is_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(UsageError, match="no rows"):
        read_dataset(write(tmp_path, data))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        read_dataset(tmp_path / "none.jsonl")


@pytest.mark.fault("B127")
def test_lone_surrogates_are_replaced_and_counted(tmp_path: Path) -> None:
    dataset = read_dataset(write(tmp_path, b'{"prompt": "cut \\ud83d here", "note": "\\ud83d\\ude00"}\n'))
    assert dataset.rows[0].prompt == "cut \N{REPLACEMENT CHARACTER} here"
    assert dataset.rows[0].source["note"] == "\N{GRINNING FACE}"
    assert dataset.replaced_surrogates == 1


def test_a_prompt_of_a_megabyte_is_fine(tmp_path: Path) -> None:
    assert len(read_dataset(write(tmp_path, b'{"prompt": "' + b"x" * 1_000_000 + b'"}')).rows[0].prompt) == 1_000_000


def test_fields_and_aliases(tmp_path: Path) -> None:
    lines = b'{"prompt": "a", "image": "python:3.12", "toolsets": "file, terminal,file", "tag": 7}\n{"prompt": "b"}\n'
    dataset = read_dataset(write(tmp_path, lines), max_samples=1)
    (row,) = dataset.rows
    assert (row.image, row.toolsets, row.source["tag"]) == ("python:3.12", ("file", "terminal"), 7)


def test_a_packed_file_reads_like_a_plain_one(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl.gz"
    path.write_bytes(gzip.compress(b'\xef\xbb\xbf{"prompt": "a"}\n\n{"prompt": "b"}\n{"prompt": "c"}'))
    rows = read_dataset(path).rows
    assert [rows[number].prompt for number in (2, 0, 1)] == ["c", "a", "b"] and rows[1].line == 3
    rows.close()
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(UsageError, match="is cut short: it is packed, and its end is missing"):
        read_dataset(path)


def test_a_row_of_messages_is_a_conversation_to_go_on_with(tmp_path: Path) -> None:
    line = (
        b'{"messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}, '
        b'{"role": "assistant", "content": "yes?"}, {"role": "user", "content": "the sum"}], "system": "first"}\n'
    )
    (row,) = read_dataset(write(tmp_path, line)).rows
    assert (row.prompt, row.system) == ("the sum", "first\n\nbe brief")
    assert [(said["role"], said["content"]) for said in row.before] == [("user", "hi"), ("assistant", "yes?")]


@pytest.mark.parametrize(
    "messages",
    [
        "[]",
        '"hi"',
        '[{"role": "user"}]',
        '[{"role": "assistant", "content": "a"}]',
        '[{"role": "tool", "content": ""}]',
    ],
)
def test_messages_that_cannot_be_gone_on_with_are_refused(tmp_path: Path, messages: str) -> None:
    with pytest.raises(UsageError, match="message"):
        read_dataset(write(tmp_path, f'{{"messages": {messages}}}\n'.encode()))


def test_what_rows_hold_is_not_kept(tmp_path: Path) -> None:
    path = write(tmp_path, b"".join(b'{"prompt": "%06d%s"}\n' % (number, b"x" * 1000) for number in range(5_000)))
    tracemalloc.start()
    try:
        dataset = read_dataset(path)
        plan = plan_new(dataset)
        kept, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 150 * 5_000 and most < 300 * 5_000 < path.stat().st_size
    assert [mark.index for mark in plan.items.marks()] == list(range(5_000))
    assert plan.items[4_999].row.prompt.startswith("004999x")


def test_equal_rows_are_told_apart_by_their_number() -> None:
    digests = b"".join(bytes([byte]) * 16 for byte in (3, 1, 3, 3, 1, 2))
    assert list(ordinals(digests)) == [0, 0, 1, 2, 1, 0]
