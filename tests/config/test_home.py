"""Where the home is, and what happens when it cannot be written."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from hermes.config import find_home
from hermes.core.errors import OperatorError, UsageError


def test_the_variable_wins_over_the_users_home(tmp_path: Path) -> None:
    assert find_home({"HERMES_HOME": str(tmp_path / "h"), "HOME": "/x"}).path == tmp_path / "h"
    assert find_home({"HERMES_HOME": "  ", "HOME": "/x"}).path == Path("/x/.hermes")


@pytest.mark.fault("B135")
def test_a_profile_has_a_folder_of_its_own_and_shares_only_the_root(tmp_path: Path) -> None:
    work = tmp_path / "profiles" / "work"
    work.mkdir(parents=True)
    home = find_home({"HERMES_HOME": str(tmp_path)}, "work")
    assert (home.path, home.root, home.profile) == (work, tmp_path, "work")
    assert home.config_file == work / "config.yaml"
    assert home.database == work / "runtime.db"
    assert find_home({"HERMES_HOME": str(work)}) == home
    assert find_home({"HERMES_HOME": str(work)}, "default").path == tmp_path


def test_an_unknown_profile_names_the_known_ones(tmp_path: Path) -> None:
    (tmp_path / "profiles" / "work").mkdir(parents=True)
    with pytest.raises(UsageError, match="there is no profile 'wrok'.*Known profiles: default, work"):
        find_home({"HERMES_HOME": str(tmp_path)}, "wrok")


@pytest.mark.parametrize("name", ["", "../x", "A", "a/b", "-x", "a" * 65])
def test_what_is_no_profile_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="no profile name"):
        find_home({"HERMES_HOME": str(tmp_path)}, name)


def test_nothing_is_made_before_it_is_needed_and_then_it_is_private(tmp_path: Path) -> None:
    home = find_home({"HERMES_HOME": str(tmp_path / "deep" / "h")})
    assert not home.path.exists()
    home.prepare(home.run_dir, home.logs_dir)
    assert {stat.S_IMODE(path.stat().st_mode) for path in (home.path, home.run_dir, home.logs_dir)} == {0o700}


def test_a_home_that_cannot_be_made_names_path_and_cure(tmp_path: Path) -> None:
    (tmp_path / "h").write_text("a file")
    for path in (tmp_path / "h", tmp_path / "h" / "deeper"):
        with pytest.raises(OperatorError, match=f"{path}.*HERMES_HOME"):
            find_home({"HERMES_HOME": str(path)}).prepare()


def test_a_file_in_the_place_of_the_home_is_named(tmp_path: Path) -> None:
    (tmp_path / ".hermes").write_text("not a home", encoding="utf-8")
    for environ in ({"HERMES_HOME": str(tmp_path / ".hermes")}, {"HOME": str(tmp_path)}):
        with pytest.raises(OperatorError, match=r"\.hermes is a file, and a home is a folder"):
            find_home(environ)
