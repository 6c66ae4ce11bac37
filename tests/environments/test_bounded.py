"""Files behind a boundary: what is inside is reached as commands reach it, and no name, link or race leads out."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
import threading
from pathlib import Path

import pytest

from hermes.core.errors import ToolError
from hermes.environments.bounded import BoundedFiles, Mount
from hermes.environments.git_shadow import introduce


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "outside" / "secret"
    path.parent.mkdir()
    path.write_text("SECRET")
    return path


@pytest.fixture
def work(tmp_path: Path) -> Path:
    path = tmp_path / "work"
    (path / "sub").mkdir(parents=True)
    (path / "file").write_text("inside")
    return path


@pytest.fixture
def files(tmp_path: Path, work: Path) -> BoundedFiles:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "system").mkdir()
    (tmp_path / "system" / "tool").write_text("tool")
    (work / "hidden").mkdir()
    (work / "hidden" / "key").write_text("SECRET")
    return BoundedFiles(
        [
            Mount(inside="/work", outside=str(work), writable=True),
            Mount(inside="/work/hidden", outside=None),
            Mount(inside="/box", outside=str(tmp_path / "tmp"), writable=True),
            Mount(inside="/usr", outside=str(tmp_path / "system")),
        ],
        {"/bin": "usr", "/home/agent": "/box"},
        "the sandbox",
    )


def read(files: BoundedFiles, path: str) -> str:
    with open(files.open(path), encoding="utf-8") as file:
        return file.read()


def test_paths_mean_what_they_mean_inside(files: BoundedFiles, tmp_path: Path, work: Path) -> None:
    assert read(files, "/work/file") == "inside"
    assert read(files, "/bin/tool") == "tool"
    files.replace("/box/new/deep.txt", b"x")
    assert (tmp_path / "tmp" / "new" / "deep.txt").read_text() == "x"
    assert read(files, "/home/agent/new/deep.txt") == "x"
    (work / "absolute").symlink_to("/box/new/deep.txt")
    (work / "relative").symlink_to("sub/../file")
    (work / "folder").symlink_to("/box/new")
    assert read(files, "/work/absolute") == "x" and read(files, "/work/relative") == "inside"
    assert read(files, "/work/folder/deep.txt") == "x"
    assert files.real("/work/absolute") == str(tmp_path / "tmp" / "new" / "deep.txt")
    assert files.real("/work/none/at/all") == str(work / "none/at/all")
    files.replace("/work/absolute", b"y")
    assert read(files, "/box/new/deep.txt") == "y" and (work / "absolute").is_symlink()
    assert files.scan("/work") == [
        ("absolute", "link"), ("file", "file"), ("folder", "link"), ("hidden", "folder"), ("relative", "link"),
        ("sub", "folder"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "way",
    [
        "/work/../{secret}", "{secret}", "/proc/self/environ", "/proc/self/root{secret}", "/proc/1/cwd/x", "/",
        "/etc/shadow", "/work/hidden/key", "/work/./hidden//key", "/work/sub/../hidden/key", "/dev/sda", "/home",
        "/workaround/file", "/box/../../etc/passwd",
    ],
)  # fmt: skip
def test_no_path_leads_out(files: BoundedFiles, secret: Path, way: str) -> None:
    path = way.format(secret=secret)
    for action in (files.open, files.stat, files.scan, lambda path: files.replace(path, b"x")):
        with pytest.raises((ToolError, OSError)) as refused:
            action(path)
        assert "SECRET" not in str(refused.value)
    assert secret.read_text() == "SECRET"


@pytest.mark.parametrize("target", ["{secret}", "{outside}", "/proc/self/root", "../outside", "/work/hidden", "hidden"])
def test_no_link_leads_out(files: BoundedFiles, secret: Path, work: Path, target: str) -> None:
    (work / "link").symlink_to(target.format(secret=secret, outside=secret.parent))
    for path in ("/work/link", "/work/link/secret", "/work/link/key", f"/work/link{secret}"):
        for action in (files.open, files.stat, lambda path: files.replace(path, b"x")):
            with pytest.raises((ToolError, OSError)):
                action(path)
    assert secret.read_text() == "SECRET" and (work / "hidden" / "key").read_text() == "SECRET"


def test_links_in_a_circle_end(files: BoundedFiles, work: Path) -> None:
    (work / "a").symlink_to("b")
    (work / "b").symlink_to("a")
    with pytest.raises(OSError) as refused:
        files.open("/work/a")
    assert refused.value.errno == errno.ELOOP


def test_what_is_mounted_read_only_is_not_written(files: BoundedFiles, work: Path, tmp_path: Path) -> None:
    (work / "tool").symlink_to("/usr/tool")
    for path in ("/usr/tool", "/usr/new", "/bin/tool", "/work/tool", "/work", "/work/sub"):
        with pytest.raises(OSError):
            files.replace(path, b"x")
    (work / "kept").write_text("x")
    (work / "kept").chmod(0o444)
    with pytest.raises(PermissionError):
        files.replace("/work/kept", b"y")
    assert (tmp_path / "system" / "tool").read_text() == "tool"


def test_a_written_file_keeps_its_mode_and_leaves_nothing_beside_it(files: BoundedFiles, work: Path) -> None:
    (work / "run.sh").write_text("x")
    (work / "run.sh").chmod(0o750)
    files.replace("/work/run.sh", b"new")
    assert stat.S_IMODE((work / "run.sh").stat().st_mode) == 0o750
    files.replace("/work/\N{SNOWMAN}", b"1")
    assert sorted(os.listdir(work)) == ["file", "hidden", "run.sh", "sub", "\N{SNOWMAN}"]


def test_a_pipe_is_opened_without_waiting(files: BoundedFiles, work: Path) -> None:
    os.mkfifo(work / "pipe")
    descriptor = files.open("/work/pipe")
    assert stat.S_ISFIFO(os.fstat(descriptor).st_mode)
    os.close(descriptor)
    with pytest.raises(OSError):
        files.replace("/work/pipe", b"x")


def test_a_name_that_is_exchanged_for_a_link_all_the_time_never_leads_out(
    files: BoundedFiles, secret: Path, work: Path
) -> None:
    """One thread turns a link to the inside into one to the outside and back as fast as it can."""
    (work / "real").mkdir()
    (work / "real" / "secret").write_text("inside")
    (work / "way").symlink_to("real")
    stop = threading.Event()

    def exchange() -> None:
        for target in itertools.cycle(("real", secret.parent)):
            os.symlink(target, work / "next")
            os.replace(work / "next", work / "way")
            if stop.is_set():
                return

    thread = threading.Thread(target=exchange)
    thread.start()
    seen = set()
    try:
        for _ in range(2_000):
            with contextlib.suppress(OSError, ToolError):
                seen.add(read(files, "/work/way/secret"))
                files.replace("/work/way/secret", b"inside")
    finally:
        stop.set()
        thread.join()
    assert seen == {"inside"}
    assert secret.read_text() == "SECRET" and os.listdir(secret.parent) == ["secret"]


def test_the_name_for_commits_is_written_through_no_link_of_a_command(tmp_path: Path) -> None:
    (tmp_path / "box" / "home").mkdir(parents=True)
    files = BoundedFiles([Mount(inside="/tmp", outside=str(tmp_path / "box"), writable=True)], {}, "the sandbox")
    (tmp_path / "box" / "home" / ".gitconfig").symlink_to(tmp_path / "outside")
    introduce(files, "/tmp/home", b"[user]")
    assert not (tmp_path / "outside").exists()
    (tmp_path / "box" / "home" / ".gitconfig").unlink()
    introduce(files, "/tmp/home", b"[user]")
    assert (tmp_path / "box" / "home" / ".gitconfig").read_bytes() == b"[user]"
