"""What of /etc a sandbox sees: settings, and no secret that stands in one."""

from __future__ import annotations

from pathlib import Path

from hermes.environments.system_files import leave_secrets_out, system_etc

OPEN = {
    "xdg/pip/pip.conf": "[global]\nindex-url = https://mirror.example.org/simple\n",
    "profile.d/locale.sh": "export LANG=C.UTF-8  # see https://user:$PASS@example.org or ssh://git@example.org\n",
    "ssl/certs/a.pem": "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----\n",
    "binary": "\udcff\udc80",
}
SECRET = {
    "xdg/pip/other.conf": "[global]\nindex-url = https://build:hunter2@mirror.example.org/simple\n",
    "xdg/pip/token.conf": "[global]\nindex-url = https://glpat-0123456789abcdef@mirror.example.org/simple\n",
    "ssl/certs/b.pem": "-----BEGIN RSA PRIVATE KEY-----\nMII\n",
}


def test_files_with_a_secret_and_those_not_for_everybody_are_left_out(tmp_path: Path) -> None:
    for name, text in {**OPEN, **SECRET, "profile.d/closed.sh": "export A=1\n"}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", errors="surrogateescape")
        path.chmod(0o640 if "closed" in name else 0o644)
    (tmp_path / "away").symlink_to("/etc/shadow")
    leave_secrets_out(tmp_path)
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if not path.is_dir()}
    assert left == {*OPEN, "away"}


def test_the_copy_of_this_machine_has_what_programs_need(tmp_path: Path) -> None:
    copy = system_etc(tmp_path / "cache")
    assert (copy / "passwd").is_file() and not (copy / "shadow").exists()
    assert system_etc(tmp_path / "cache") == copy, "it is made once"
