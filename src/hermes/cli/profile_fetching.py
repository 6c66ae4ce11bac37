"""Where an offered profile is: a folder, a file that `hermes profile export` wrote, or a git repository.

Of a repository nothing is checked out: its files are read from the commit, so no link is followed and no program that
the repository or a filter names is run. Keys for a private one are git's own matter (ssh, a credential helper).
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from hermes.config.profile_bundle import MOST_BYTES, read_bundle
from hermes.config.profile_install import Origin
from hermes.config.profile_offer import Offer, read_folder, read_offer
from hermes.core.errors import OperatorError, UsageError
from hermes.environments.git import git, git_said

__all__ = ["Fetched", "fetch"]

#: `git@host:owner/name`, and a host's own name without a scheme, as it is copied from a browser's line.
_SSH = re.compile(r"[\w.-]+@[\w.-]+:[^:]+")
_BARE = re.compile(r"[\w-]+(?:\.[\w-]+)+/[\w./~-]+")
_FORMS = "a folder, a file that `hermes profile export` wrote, or a git repository (https://…, ssh://…, git@host:path)"
#: What git may reach: no program as a transport, nothing that can be changed on its way.
_TRANSPORTS = {"GIT_ALLOW_PROTOCOL": "https:ssh:file", "GIT_SSH_COMMAND": "ssh -o BatchMode=yes"}


class Fetched(msgspec.Struct, frozen=True, kw_only=True):
    """What was found at a place."""

    offer: Offer
    origin: Origin


def fetch(source: str, ref: str = "") -> Fetched:
    """Read the profile that is offered at `source`; `ref` is a branch, tag or commit of a repository.

    Raises:
        UsageError: it is no such place, or holds no profile. OperatorError: it cannot be reached.
    """
    path = Path(os.path.abspath(os.path.expanduser(source)))
    if path.is_dir() and not ref:
        return _made(read_folder(path), Origin(source=str(path), kind="folder"))
    if path.is_file():
        if ref:
            raise UsageError(f"--ref goes with a git repository; {path} is a file.")
        return _made(_bundled(path), Origin(source=str(path), kind="archive"))
    url = path.as_uri() if path.is_dir() else _url(source)
    with tempfile.TemporaryDirectory(prefix="hermes-profile-") as folder:
        return _cloned(folder, url, ref)


def _made(offer: Offer, origin: Origin) -> Fetched:
    said = offer.manifest
    known = msgspec.structs.replace(
        origin, version=said.version, description=said.description, author=said.author, at=time.time()
    )
    return Fetched(offer=offer, origin=known)


def _bundled(path: Path) -> Offer:
    name, files = read_bundle(path)
    return read_offer(list(files), lambda inner: files[inner].encode(), str(path), name)


def _url(source: str) -> str:
    if source.startswith("-"):
        raise UsageError(f"{source!r} is no place: give {_FORMS}.")
    if _SSH.fullmatch(source):
        return source
    url = source if "://" in source else f"https://{source}" if _BARE.fullmatch(source) else ""
    parts = urlsplit(url)
    if parts.scheme not in ("https", "ssh", "file"):
        reason = " http:// and git:// can be changed on their way." if parts.scheme in ("http", "git") else ""
        raise UsageError(f"{source!r} is no place that a profile can be installed from: give {_FORMS}.{reason}")
    if parts.password or (parts.username and parts.scheme == "https"):
        raise UsageError(
            "the address holds a user name or a key, which would be written down with the profile: leave it out, and "
            "let git find it (a credential helper, or ssh)."
        )
    return url


def _cloned(folder: str, url: str, ref: str) -> Fetched:
    if ref.startswith("-"):
        raise UsageError(f"{ref!r} is no branch, tag or commit.")
    git(folder, "init", "-q")
    done = git(folder, "fetch", "-q", "--depth", "1", "--no-tags", "--", url, ref or "HEAD", env=_TRANSPORTS)
    if done.returncode != 0:
        raise OperatorError(f"cannot fetch {ref or 'the newest commit'} of {url}: {git_said(done)}.")
    commit = git(folder, "rev-parse", "FETCH_HEAD").stdout.strip()
    listed = git(folder, "ls-tree", "-r", "-l", "-z", "FETCH_HEAD").stdout
    blobs: dict[str, tuple[str, int]] = {}
    for line in filter(None, listed.split("\0")):
        about, _, name = line.partition("\t")
        mode, _, blob, size = about.split()
        blobs[name] = (blob, int(size) if mode in ("100644", "100755") else MOST_BYTES + 1)

    def read(name: str) -> bytes | None:
        blob, size = blobs[name]
        if size > MOST_BYTES:
            return None
        return git(folder, "cat-file", "blob", blob).stdout.encode("utf-8", "surrogateescape")

    called = re.sub(r"\.git$", "", url.rstrip("/")).replace(":", "/").rpartition("/")[2]
    offer = read_offer(list(blobs), read, url, called)
    return _made(offer, Origin(source=url, kind="git", ref=ref, commit=commit))
