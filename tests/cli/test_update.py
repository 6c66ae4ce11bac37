"""`hermes update`: real installations of each kind, from one version to the next and back, with a tree running."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hermes.cli.installation import (
    Installation,
    Version,
    change_commands,
    environment,
    find_installation,
    following,
    newest,
)
from hermes.core.errors import OperatorError, UsageError
from hermes.environments.process import DEPTH
from hermes.store.hosting import host_alive
from hermes.testing.faults import Fault
from hermes.testing.scripted import Reply, call, reply
from hermes.testing.server import ProviderServer, Request, serve_in_thread
from tests.cli.conftest import Ran
from tests.cli.program import Program

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0
#: The newer version has one more step in its journal's layout.
STEP = '''
@migration("9999_later")
def later(db: sqlite3.Connection) -> None:
    """A table that older versions do not know."""
    db.execute("CREATE TABLE later (x)")


MIGRATIONS = (*MIGRATIONS, later)
'''


def sources(place: Path, version: str) -> Path:
    """The sources of a version, without dependencies: there is no index to take them from."""
    shutil.copytree(ROOT / "src", place / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, place / name)
    renumber(place, version)
    return place


def renumber(place: Path, version: str) -> None:
    project, package = place / "pyproject.toml", place / "src/hermes/__init__.py"
    text = re.sub(r"(?ms)^dependencies = \[.*?^\]", "dependencies = []", project.read_text(encoding="utf-8"))
    project.write_text(re.sub(r'(?m)^version = ".*"', f'version = "{version}"', text, count=1), encoding="utf-8")
    text = package.read_text(encoding="utf-8")
    package.write_text(re.sub(r'(?m)^__version__ = ".*"', f'__version__ = "{version}"', text), encoding="utf-8")


def grow(place: Path) -> None:
    """Give these sources a newer layout of the journal."""
    file = place / "src/hermes/store/migrations.py"
    text = file.read_text(encoding="utf-8")
    head, tail = text.split("\ndef migrate(", 1)
    defaults = tail.replace("migrations: tuple[Migration, ...] = MIGRATIONS", "migrations=MIGRATIONS", 1)
    file.write_text(f"{head}{STEP}\n\ndef migrate({defaults}", encoding="utf-8")


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A wheel of 0.1.0 and one of 0.1.1, built as a release is."""
    base = tmp_path_factory.mktemp("wheels")
    found = {}
    for version in ("0.1.0", "0.1.1"):
        place = sources(base / version, version)
        if version == "0.1.1":
            grow(place)
        subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(base)],
            cwd=place, check=True, capture_output=True,
        )  # fmt: skip
        (found[version],) = base.glob(f"*{version}*.whl")
    return found


class Model:
    """A conversation that hands out two parts; while `held`, the second does not answer."""

    def __init__(self) -> None:
        self.held = True

    def __call__(self, request: Request) -> Reply | Fault:
        if request.first_user.startswith("part one"):
            return reply("ONE")
        if request.first_user.startswith("part two"):
            return reply("TWO", delay=600 if self.held else 0)
        if request.turn == 0:
            return reply(calls=[call("spawn_parallel", tasks=["part one", "part two"])])
        return reply("all is done")


class Machine(Program):
    """A user's machine: an installation of 0.1.0 of some kind, and where 0.1.1 will appear."""

    patience = 150.0  # an update builds a package and starts a dozen programs

    def __init__(self, base: Path) -> None:
        super().__init__(base)
        self.base = base
        self.model = Model()
        self.server: ProviderServer
        self.publish: Callable[[], None]
        self.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # two versions within one second have one time stamp
        self.environ["GIT_CONFIG_GLOBAL"] = str(base / "gitconfig")
        (base / "gitconfig").write_text("[user]\nname = x\nemail = x@localhost\n[init]\ndefaultBranch = main\n")

    def links(self, wheels: dict[str, Path]) -> Path:
        """A folder in place of an index; `publish` puts the newer version there."""
        place = self.base / "links"
        place.mkdir()
        shutil.copy(wheels["0.1.0"], place)
        self.publish = lambda: shutil.copy(wheels["0.1.1"], place) and None
        self.environ |= {
            "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(place), "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "UV_NO_INDEX": "1", "UV_OFFLINE": "1", "UV_FIND_LINKS": str(place), "UV_NO_CONFIG": "1",
            "UV_CACHE_DIR": str(self.base / "uvcache"), "UV_PYTHON_DOWNLOADS": "never",
            "UV_TOOL_DIR": str(self.base / "uvtools"), "UV_TOOL_BIN_DIR": str(self.base / "uvbin"),
            "PIPX_HOME": str(self.base / "pipx"), "PIPX_BIN_DIR": str(self.base / "pipxbin"),
            "PIPX_MAN_DIR": str(self.base / "man"), "PIPX_DEFAULT_BACKEND": "uv",
        }  # fmt: skip
        self.environ.pop("PYTHONPATH", None)
        return place

    def tool(self, *command: str) -> None:
        done = subprocess.run(
            command, cwd=self.base, env=self.environ, capture_output=True, encoding="utf-8", timeout=120, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"

    def lend(self, environment: Path) -> None:
        """Let an environment use what this one has, without this project itself."""
        there = self.base / "lent"
        there.mkdir()
        for folder in (Path(entry) for entry in sys.path if entry.endswith("site-packages")):
            for entry in folder.iterdir():
                if "hermes" not in entry.name and entry.suffix != ".pth" and not (there / entry.name).exists():
                    (there / entry.name).symlink_to(entry)
        (place,) = environment.glob("lib/python*/site-packages")
        (place / "lent.pth").write_text(f"{there}\n", encoding="utf-8")

    def state(self, goal: str) -> str:
        with closing(sqlite3.connect(f"file:{self.home / 'runtime.db'}?mode=ro", uri=True)) as db:
            found = db.execute("SELECT state FROM tasks WHERE goal = ?", (goal,)).fetchone()
        return str(found[0]) if found else ""

    def until(self, true: Callable[[], Any], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not true():
            if time.monotonic() > deadline:
                pytest.fail(f"never came: {what}\n{self.log()}")
            time.sleep(0.05)

    def log(self) -> str:
        path = self.home / "logs" / "host.log"
        return path.read_text(encoding="utf-8") if path.exists() else "no log"

    def done(self, *args: str) -> Ran:
        ran = self.run(*args)
        assert ran.code == 0, f"{args}\n{ran.out}\n{ran.err}\n{self.log()}"
        return ran

    def version(self) -> str:
        return self.done("--version").out.split()[-1]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    there = Machine(tmp_path)
    with serve_in_thread(there.model) as server:
        there.server = server
        there.use(server)
        yield there
        if host_alive(there.home):
            there.run("host", "--stop")


def as_checkout(machine: Machine) -> None:
    origin, checkout, author = machine.base / "origin.git", machine.base / "checkout", machine.base / "author"
    machine.tool("git", "init", "--quiet", "--bare", str(origin))
    sources(author, "0.1.0")
    in_author = ("git", "-C", str(author))
    machine.tool(*in_author, "init", "--quiet")
    machine.tool(*in_author, "remote", "add", "origin", str(origin))

    def push(message: str) -> None:
        machine.tool(*in_author, "add", "--all")
        machine.tool(*in_author, "commit", "--quiet", "-m", message)
        machine.tool(*in_author, "push", "--quiet", "--set-upstream", "origin", "main")

    def publish() -> None:
        grow(author)
        package = author / "src/hermes/__init__.py"
        package.write_text(package.read_text().replace('"0.1.0"', '"0.1.1"'))
        push("the newer one")

    push("the first one")
    machine.tool("git", "clone", "--quiet", str(origin), str(checkout))
    machine.publish = publish
    machine.environ["PYTHONPATH"] = str(checkout / "src")
    machine.command = [sys.executable, "-P", "-m", "hermes.cli.main"]


def as_folder(machine: Machine) -> None:
    """pip, from the folder of a checkout; what builds it is lent, since there is no index."""
    as_checkout(machine)
    place = machine.base / "venv"
    machine.tool(sys.executable, "-m", "venv", str(place))
    machine.lend(place)
    del machine.environ["PYTHONPATH"]
    machine.environ |= {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "false"}
    machine.tool(str(place / "bin/python"), "-m", "pip", "install", "--quiet", str(machine.base / "checkout"))
    machine.command = [str(place / "bin/hermes")]


def as_pip(machine: Machine, wheels: dict[str, Path]) -> None:
    machine.links(wheels)
    place = machine.base / "venv"
    machine.tool(sys.executable, "-m", "venv", str(place))
    machine.tool(str(place / "bin/python"), "-m", "pip", "install", "--quiet", "hermes-tasktree")
    machine.lend(place)
    machine.command = [str(place / "bin/hermes")]


def as_uv(machine: Machine, wheels: dict[str, Path]) -> None:
    machine.links(wheels)
    machine.tool("uv", "tool", "install", "--quiet", "--python", base_python(), "hermes-tasktree")
    machine.lend(machine.base / "uvtools/hermes-tasktree")
    for name in ("UV_TOOL_DIR", "UV_TOOL_BIN_DIR"):  # the update finds them by itself
        del machine.environ[name]
    machine.command = [str(machine.base / "uvbin/hermes")]


def as_pipx(machine: Machine, wheels: dict[str, Path]) -> None:
    machine.links(wheels)
    machine.tool("pipx", "install", "--python", base_python(), "hermes-tasktree")
    machine.lend(machine.base / "pipx/venvs/hermes-tasktree")
    del machine.environ["PIPX_HOME"]
    machine.command = [str(machine.base / "pipxbin/hermes")]


def base_python() -> str:
    return str(Path(sys.base_prefix) / "bin" / "python3")


def install(machine: Machine, kind: str, wheels: dict[str, Path], needs_tool: Callable[[str], Path]) -> None:
    for tool in {"checkout": ("git",), "folder": ("git",), "pip": (), "uv": ("uv",), "pipx": ("uv", "pipx")}[kind]:
        needs_tool(tool)
    if kind in ("checkout", "folder"):
        {"checkout": as_checkout, "folder": as_folder}[kind](machine)
    else:
        {"pip": as_pip, "uv": as_uv, "pipx": as_pipx}[kind](machine, wheels)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["checkout", "folder", "pip", "uv", "pipx"])
def test_a_tree_goes_on_under_the_next_version_and_the_way_back_is_open(
    machine: Machine, kind: str, request: pytest.FixtureRequest, needs_tool: Callable[[str], Path]
) -> None:
    install(machine, kind, {} if kind in ("checkout", "folder") else request.getfixturevalue("wheels"), needs_tool)
    assert machine.version() == "0.1.0"
    assert "that is the newest" in machine.done("update").out
    session = machine.done("-m", "test-model", "chat", "--detach", "-q", "root").out.strip()
    asked = machine.server.requests
    machine.until(lambda: any(one.first_user.startswith("part two") for one in asked), "part two")
    machine.until(lambda: machine.state("part one") == "completed", "the end of part one")

    machine.publish()
    check = machine.done("update", "--check").out
    assert "0.1.0" in check and "0.1.1" in check
    plan = machine.done("update", "--plan").out
    assert "0.1.1" in plan and "work in the background" in plan and "unfinished tasks" in plan
    refused = machine.run("update")
    assert refused.code == 75 and "--restart" in refused.err
    assert machine.version() == "0.1.0" and machine.state("part two") == "running"

    machine.model.held = False
    ran = machine.done("update", "--restart")
    assert "hermes 0.1.1" in ran.out and f"session {session} goes on in the background" in ran.err
    assert machine.version() == "0.1.1"
    root = json.loads(machine.done("tasks", "list", "--session", session, "--json").out)["tasks"]
    (main,) = [task["task_id"] for task in root if task["goal"] == "root"]
    assert machine.done("tasks", "collect", main, "--timeout", "60").out == "all is done\n"
    assert sum(one.first_user.startswith("part one") for one in asked) == 1
    assert re.search(r"hermes 0\.1\.0\n(.*\n)*.*hermes 0\.1\.1\n", machine.log())
    assert "that is the newest" in machine.done("update").out

    careful = machine.run("update", "--rollback")
    assert careful.code == 75 and "cannot read the journal of today" in careful.err
    back = machine.done("update", "--rollback", "--yes")
    assert "hermes 0.1.0" in back.out and "is installed again" in back.out
    assert machine.version() == "0.1.0"
    assert session in machine.done("sessions", "list").out
    assert list(machine.home.glob("runtime.db.v*"))  # the newer journal is kept
    assert machine.run("update", "--rollback").code == 1
    again = machine.done("update", "--restart")
    assert machine.version() == "0.1.1", f"{again.out}{again.err}"


@pytest.mark.slow
def test_a_version_that_does_not_start_is_taken_back(machine: Machine, needs_tool: Callable[[str], Path]) -> None:
    install(machine, "checkout", {}, needs_tool)
    author, checkout = machine.base / "author", machine.base / "checkout"

    def head() -> bytes:
        return subprocess.run(("git", "-C", str(checkout), "rev-parse", "HEAD"), capture_output=True, check=True).stdout

    machine.publish()
    (author / "src/hermes/runtime/host.py").write_text("raise RuntimeError('half a release')\n", encoding="utf-8")
    for words in (("commit", "--quiet", "-am", "broken"), ("push", "--quiet")):
        machine.tool("git", "-C", str(author), *words)
    ran = machine.run("update")
    assert ran.code == 1 and "half a release" in ran.err and "did not start" in ran.err
    assert machine.version() == "0.1.0"
    machine.done("host", "--status")
    lock = author / "requirements.lock"  # what it needs cannot be had: the first step worked, the second does not
    lock.write_text("-r no-such-file.txt\n", encoding="utf-8")
    for words in (("add", "--all"), ("commit", "--quiet", "-m", "needs"), ("push", "--quiet")):
        machine.tool("git", "-C", str(author), *words)
    before = head()
    ran = machine.run("update")
    assert ran.code == 1 and "no-such-file.txt" in ran.err, ran.err
    assert head() == before and machine.version() == "0.1.0"


@pytest.mark.slow
def test_another_branch_is_followed_and_left_again(machine: Machine, needs_tool: Callable[[str], Path]) -> None:
    install(machine, "checkout", {}, needs_tool)
    in_author, in_checkout = (("git", "-C", str(machine.base / name)) for name in ("author", "checkout"))
    machine.tool(*in_author, "switch", "--quiet", "--create", "next")
    package = machine.base / "author/src/hermes/__init__.py"
    package.write_text(package.read_text().replace('"0.1.0"', '"0.2.0"'), encoding="utf-8")
    machine.tool(*in_author, "commit", "--quiet", "-am", "what comes next")
    machine.tool(*in_author, "push", "--quiet", "origin", "next")

    def on() -> str:
        asked = subprocess.run((*in_checkout, "branch", "--show-current"), capture_output=True, check=True)
        return asked.stdout.decode().strip()

    machine.done("-m", "test-model", "chat", "-q", "part one")
    assert "that is the newest" in machine.done("update").out
    wrong = machine.run("update", "--branch", "nowhere")
    assert wrong.code == 2 and "origin has no branch 'nowhere'; it has main, next." in wrong.err
    assert "0.2.0" in machine.done("update", "--check", "--branch", "next").out
    assert "--create next --track origin/next" in machine.done("update", "--plan", "--branch=next").out
    assert (on(), machine.version()) == ("main", "0.1.0")

    ran = machine.done("update", "--branch", "next", "--backup")
    assert (on(), machine.version()) == ("next", "0.2.0")
    assert f"{machine.home / 'runtime.db'} is copied to " in ran.err and list(machine.home.glob("runtime.db.v*"))
    assert "that is the newest" in machine.done("update").out
    machine.done("update", "--rollback")
    assert (on(), machine.version()) == ("main", "0.1.0")
    machine.tool(*in_checkout, "switch", "--quiet", "--detach")
    machine.done("update", "--branch", "next")
    assert (on(), machine.version()) == ("next", "0.2.0")
    machine.done("update", "--rollback")
    assert (on(), machine.version()) == ("", "0.1.0")


def test_a_branch_is_followed_where_the_tool_can_do_that(tmp_path: Path) -> None:
    asked = {"vcs": "git", "commit_id": "1f", "requested_revision": "0123456789" * 4}
    git = found(tmp_path, record=json.dumps({"url": "https://host/x.git", "vcs_info": asked}))
    assert git.wanted == "hermes-tasktree @ git+https://host/x.git"  # the way back named a commit
    assert following(git, "next").wanted.endswith("x.git@next")
    with pytest.raises(UsageError, match="from a git repository"):
        following(found(tmp_path), "next")
    (tmp_path / "uv-receipt.toml").touch()
    with pytest.raises(UsageError, match=r"uv tool install --force '.*x\.git@next'"):
        following(found(tmp_path, record=json.dumps({"url": "https://host/x.git", "vcs_info": asked})), "next")


def test_what_a_checkout_has_of_its_own_is_not_touched(machine: Machine, needs_tool: Callable[[str], Path]) -> None:
    install(machine, "checkout", {}, needs_tool)
    readme = machine.base / "checkout/README.md"
    readme.write_text("mine\n", encoding="utf-8")
    ran = machine.run("update", "--check")
    assert ran.code == 2 and "has changes of its own (README.md)" in ran.err
    machine.tool("git", "-C", str(machine.base / "checkout"), "commit", "--quiet", "-am", "mine")
    assert "that is the newest" in machine.done("update").out
    machine.publish()
    ran = machine.run("update")
    assert ran.code == 2 and "has commits that origin/main has not" in ran.err
    machine.tool("git", "-C", str(machine.base / "checkout"), "switch", "--quiet", "--detach")
    ran = machine.run("update")
    assert ran.code == 1 and "follows no other branch" in ran.err
    assert readme.read_text(encoding="utf-8") == "mine\n"


def found(tmp_path: Path, record: str | None = "", **given: Any) -> Installation:
    module = tmp_path / "lib/python3.11/site-packages/hermes/__init__.py"
    values: dict[str, Any] = {"prefix": tmp_path, "base_prefix": Path("/usr"), "stdlib": tmp_path}
    return find_installation(**{"module": module, "python": tmp_path, "recorded": lambda: record, **values, **given})


def test_how_it_was_installed_is_read_from_what_the_tools_leave(tmp_path: Path) -> None:
    assert found(tmp_path).kind == "pip" and found(tmp_path).wanted == "hermes-tasktree"
    asked = {"vcs": "git", "commit_id": "1f", "requested_revision": "v"}
    git = found(tmp_path, record=json.dumps({"url": "https://host/x.git", "vcs_info": asked}))
    assert git.wanted == "hermes-tasktree @ git+https://host/x.git@v" and git.version.commit == "1f"
    ((*_, exact),) = change_commands(git, git.version, back=True)
    assert exact == "hermes-tasktree @ git+https://host/x.git@1f"
    folder = found(tmp_path, record=json.dumps({"url": f"file://{tmp_path}/a%20b", "dir_info": {}}))
    assert folder.folder == tmp_path / "a b" and folder.checkout is None and newest(folder) is None
    with pytest.raises(OperatorError, match="keeps no older versions"):
        change_commands(folder, folder.version, back=True)
    wheel = json.dumps({"url": "file:///x.whl", "archive_info": {}})
    assert found(tmp_path, record=wheel).wanted == "hermes-tasktree"
    with pytest.raises(OperatorError, match="neither a git checkout nor installed"):
        found(tmp_path, record=None)
    (tmp_path / "EXTERNALLY-MANAGED").touch()
    assert found(tmp_path).kind == "pip"
    with pytest.raises(OperatorError, match="package manager"):
        found(tmp_path, base_prefix=tmp_path)
    (tmp_path / "pipx_metadata.json").write_text("{}", encoding="utf-8")
    assert found(tmp_path).kind == "pipx"
    (tmp_path / "uv-receipt.toml").write_text(
        '[tool]\nentrypoints = [{ name = "hermes", install-path = "/b/hermes" }]\n', encoding="utf-8"
    )
    uv = found(tmp_path)
    assert uv.kind == "uv" and environment(uv, {})["UV_TOOL_BIN_DIR"] == "/b"
    assert environment(uv, {})["UV_TOOL_DIR"] == str(tmp_path.parent)


def test_an_environment_of_uv_has_no_pip_and_needs_none(tmp_path: Path, needs_tool: Callable[[str], Path]) -> None:
    needs_tool("uv")
    (tmp_path / "pyvenv.cfg").write_text("home = /usr/bin\nuv = 0.13.9\n", encoding="utf-8")
    (command,) = change_commands(found(tmp_path), Version("0.2.0"))
    assert command[:4] == ("uv", "pip", "install", "--python")


def test_contradictions_are_refused(hermes: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    assert hermes("update", "--check", "--plan").code == 2
    assert hermes("update", "--wait", "--restart").code == 2
    assert hermes("update", "--rollback", "--branch", "next").code == 2
    for option in ("--channel=beta", "--set-channel=beta", "--install-id", "--gateway", "--no-backup"):
        ran = hermes("update", option)
        assert ran.code == 2 and option.partition("=")[0] in ran.err and "not supported" not in ran.err
    monkeypatch.setenv(DEPTH, "1")
    ran = hermes("update")
    assert ran.code == 2 and "cannot update the program that runs it" in ran.err
