"""Pieces that several processes wrote become one cassette: each tree once and whole, and no dead end of a process."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes.core.codec import encode_json
from hermes.core.errors import OperatorError, UsageError
from hermes.providers.recorded import KeptReply
from hermes.runtime.cassette import (
    CassetteFile,
    EndLine,
    Header,
    Line,
    ReplyLine,
    RequestShape,
    TaskLine,
    read_cassette,
)
from hermes.runtime.cassette_pieces import JoinedCassette, new_piece


def tree(name: str, *, ended: bool = True, turns: int = 1) -> list[Line]:
    lines: list[Line] = [
        TaskLine(task=name, id="sa-00000000", kind="row"),
        TaskLine(task=f"{name}/1.0", id="x", kind="row"),
    ]
    shape = RequestShape(model="m")
    for turn in range(1, turns + 1):
        lines.append(ReplyLine(task=name, turn=turn, asked=1, seq=2, at=0.0, request=shape, reply=KeptReply()))
    lines.append(EndLine(task=f"{name}/1.0", seq=3, state="completed"))
    return [*lines, EndLine(task=name, seq=4, state="completed")] if ended else lines


def piece(path: Path, number: int, *lines: Line, began: float = 1.0, tail: bytes = b"", whole: bool = False) -> Path:
    """A piece as a process leaves it: under another name where it came to its own end."""
    place = new_piece(path, number)
    if not whole:
        place = place.with_name(place.name + ".part")
    place.write_bytes(b"".join(encode_json(line) + b"\n" for line in (Header(recorded_at=began), *lines)) + tail)
    return place


def test_each_tree_is_taken_from_the_piece_in_which_it_ended(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    joined = JoinedCassette(path)
    piece(path, 0, *tree("row:a"), *tree("row:b", ended=False, turns=3), tail=b'{"type":"reply","task":"row:b","tu')
    piece(path, 0, *tree("row:b", turns=2), began=5.0, whole=True)
    piece(path, 1, *tree("row:b.2"), *tree("row:c", ended=False), whole=True)
    assert joined.close() == (5, 0)
    cassette = read_cassette(path)
    assert sorted(cassette.replies) == [("row:a", 1), ("row:b", 1), ("row:b", 2), ("row:b.2", 1), ("row:c", 1)]
    assert sorted(cassette.ends) == ["row:a", "row:a/1.0", "row:b", "row:b.2", "row:b.2/1.0", "row:b/1.0", "row:c/1.0"]
    assert cassette.header.recorded_at == 1.0
    assert [found.name for found in tmp_path.glob("tape*")] == ["tape.jsonl"]


def test_of_two_unfinished_lives_the_later_counts(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    joined = JoinedCassette(path)
    for number in range(11):  # the eleventh life is later than the second, whatever their names look like
        piece(path, 0, *tree("row:a", ended=False, turns=number + 1), began=float(number))
    assert joined.close() == (11, 0)


def test_a_process_that_wrote_nothing_and_a_cut_head_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    joined = JoinedCassette(path)
    piece(path, 0, *tree("row:a"))
    new_piece(path, 1).write_bytes(b"")
    new_piece(path, 2).write_bytes(b'{"type":"casse')
    assert joined.close() == (1, 0)


def test_without_any_line_an_older_recording_stands(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    path.write_text("older")
    assert JoinedCassette(path).close() == (0, 0)
    assert path.read_text() == "older" and len(list(tmp_path.glob("tape*"))) == 1


def test_what_a_killed_run_left_is_removed_and_no_file_of_anybody_else(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    stale = [piece(path, 0, *tree("row:old")), piece(path, 3, *tree("row:old"), whole=True)]
    others = [tmp_path / "tape.jsonl.2026-11", tmp_path / "tape.jsonl.piece-1", tmp_path / "my.tape.jsonl.piece-0-0"]
    for other in others:
        other.write_text("kept")
    joined = JoinedCassette(path)
    assert not any(each.exists() for each in stale)
    piece(path, 0, *tree("row:a"))
    assert joined.close() == (1, 0)
    assert all(other.read_text() == "kept" for other in others)


def test_only_one_run_records_to_a_file(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    joined = JoinedCassette(path)
    piece(path, 0, *tree("row:a"))
    with pytest.raises(UsageError, match="another process is recording to"):
        JoinedCassette(path)
    with pytest.raises(UsageError, match="another process is recording to"):
        CassetteFile(path, bytes)
    assert joined.close() == (1, 0), "nothing was removed by those who came later"


def test_a_disk_that_takes_no_more_leaves_the_pieces_and_the_older_recording(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    joined = JoinedCassette(path)
    left = piece(path, 0, *tree("row:a"))
    path.mkdir()
    (path / "in the way").touch()
    with pytest.raises(OperatorError, match=r"could not be written: .* What there is stands in the files"):
        joined.close()
    assert left.exists()


def test_what_is_settled_outlives_the_process(tmp_path: Path) -> None:
    file = CassetteFile(tmp_path / "tape.jsonl", bytes)
    for number in range(500):
        file.put(TaskLine(task=f"row:{number}", id="x", kind="row"))
    file.settle()
    assert (tmp_path / "tape.jsonl.part").read_bytes().count(b"\n") == 500
    file.close()
    file.settle()
    assert len(read_lines(tmp_path / "tape.jsonl")) == 500


def test_a_full_disk_is_told_when_a_rollout_ends(tmp_path: Path) -> None:
    file = CassetteFile(tmp_path / "tape.jsonl", lambda line: b"x" * 1_000_000)
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no /dev/full here")
    file._file.close()
    file._file = full.open("wb")
    file.put(TaskLine(task="row:a", id="x", kind="row"))
    with pytest.raises(OperatorError, match="No space left on device"):
        file.settle()
    with pytest.raises(OperatorError, match="No space left on device"):
        file.close()


def read_lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines()
