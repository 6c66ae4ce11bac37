"""Taking secrets out of text before it is written, sent on or shown.

Known values are replaced wherever they stand, also escaped in JSON, percent-encoded or inside base64; so are things
that have the form of a well-known kind of key. It is the last net, not the first: commands do not get secrets and file
tools do not open their files.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple
from urllib.parse import quote, quote_plus

__all__ = ["Redactor"]

#: A shorter value would be found in ordinary text.
MIN_LENGTH = 8

#: Every well-known key but those of `_OTHERS` is a run of at least this many letters, digits, `_` and `-`; ordinary
#: text seldom has one. Looking for a run takes one pass, whatever the number of kinds.
_RUN = 19
_OTHERS = (b"eyJ", b"xox", b"earer ", b"PRIVATE KEY")
_WORD = bytes(
    ord("x") if chr(code).isascii() and (chr(code).isalnum() or chr(code) in "_-") else 32 for code in range(256)
)
_LONG = b"x" * _RUN


class _Kind(NamedTuple):
    """A well-known kind of key. `anchors` are literal pieces one of which every such key holds: looking for them first
    costs next to nothing. The pattern begins with literal text and is bounded, so that it takes linear time."""

    anchors: tuple[str, ...]
    pattern: re.Pattern[str]
    replacement: str


def _kind(label: str, pattern: str, *anchors: str) -> _Kind:
    return _Kind(anchors, re.compile(pattern), f"[redacted:{label}]")


_KINDS = (
    _kind(
        "private_key",
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?:(?!-----END)[\s\S]){0,16000}"
        r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)?",
        "PRIVATE KEY",
    ),
    _kind("api_key", r"sk[-_](?<![A-Za-z0-9_]sk[-_])(?=[A-Za-z_-]{0,300}[0-9])[A-Za-z0-9_-]{16,300}", "sk-", "sk_"),
    _kind("api_key", r"rk_(?:live|test)_[A-Za-z0-9]{16,300}", "rk_live_", "rk_test_"),
    _kind(
        "github_token",
        r"gh[pousr]_(?<![A-Za-z0-9_]gh[pousr]_)[A-Za-z0-9]{20,255}",
        "ghp_",
        "gho_",
        "ghu_",
        "ghs_",
        "ghr_",
    ),
    _kind("github_token", r"github_pat_[A-Za-z0-9_]{20,255}", "github_pat_"),
    _kind("gitlab_token", r"glpat-[A-Za-z0-9_-]{18,100}", "glpat-"),
    _kind("slack_token", r"xox[abeoprs]-[A-Za-z0-9-]{10,250}", "xox"),
    _kind("aws_key", r"AKIA(?<![A-Za-z0-9]AKIA)[A-Z0-9]{16}\b", "AKIA"),
    _kind("aws_key", r"ASIA(?<![A-Za-z0-9]ASIA)[A-Z0-9]{16}\b", "ASIA"),
    _kind("google_key", r"AIza[A-Za-z0-9_-]{35}", "AIza"),
    _kind("huggingface_token", r"hf_(?<![A-Za-z0-9_]hf_)[A-Za-z0-9]{30,100}", "hf_"),
    _kind("npm_token", r"npm_(?<![A-Za-z0-9_]npm_)[A-Za-z0-9]{36}\b", "npm_"),
    _kind("jwt", r"eyJ[A-Za-z0-9_-]{8,4000}\.eyJ[A-Za-z0-9_-]{8,8000}\.[A-Za-z0-9_-]{8,4000}", "eyJ"),
    _Kind(("earer ",), re.compile(r"earer [A-Za-z0-9._~+/=-]{16,4000}"), "earer [redacted:bearer]"),
)


class Redactor:
    """Replaces secrets by `[redacted:<label>]`.

    Args:
        secrets: values, or a mapping from label to value. Values below 8 characters are ignored.
    """

    def __init__(self, secrets: Iterable[str] | Mapping[str, str] = ()) -> None:
        self._labels: dict[str, str] = {}
        self._broken: tuple[bytes, ...] = ()  # forms without a long run: looked for one by one
        pairs = secrets.items() if isinstance(secrets, Mapping) else [("secret", secret) for secret in secrets]
        for label, secret in pairs:
            self.add(secret, label)

    def __repr__(self) -> str:
        return f"<Redactor with {len(self._labels)} forms>"

    def add(self, secret: str, label: str = "secret") -> None:
        """Learn one more secret; from now on it is replaced."""
        secret = secret.strip()
        if len(secret) < MIN_LENGTH or secret in self._labels:
            return
        label = re.sub(r"[^A-Za-z0-9_.-]", "_", label)[:40] or "secret"
        forms = {form: label for form in _forms(secret) if form not in self._labels}
        broken = {data for form in forms if _LONG not in (data := form.encode("utf-8", "replace")).translate(_WORD)}
        # Replaced as a whole: other threads may be reading them.
        self._labels = {**self._labels, **forms}
        self._broken = (*self._broken, *sorted(broken))

    def text(self, text: str) -> str:
        """Return `text` without secrets. Text without any comes back as the same object."""
        if len(text) < MIN_LENGTH or not self._may_hold(text.encode("utf-8", "replace")):
            return text
        return self._replaced(text)

    def _may_hold(self, data: bytes) -> bool:
        """Whether encoded text may hold a secret; nearly all text does not, which is found out in a few passes."""
        if _LONG in data.translate(_WORD):
            return True
        for piece in _OTHERS:
            if piece in data:
                return True
        for form in self._broken:
            if form in data:
                return True
        return False

    def _replaced(self, text: str) -> str:
        labels = self._labels
        present = [form for form in labels if form in text] if labels else []
        for form in sorted(present, key=len, reverse=True) if present else ():
            text = text.replace(form, f"[redacted:{labels[form]}]")
        for kind in _KINDS:
            for anchor in kind.anchors:
                if anchor in text:
                    text = kind.pattern.sub(kind.replacement, text)
                    break
        return text

    def json_bytes(self, data: bytes) -> bytes:
        """Return encoded JSON without secrets. It stays valid JSON: what is put in holds nothing to be escaped."""
        if not self._may_hold(data):
            return data
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            text = data.decode("utf-8", "surrogateescape")
        clean = self._replaced(text)
        return data if clean is text or clean == text else clean.encode("utf-8", "surrogateescape")


def _forms(secret: str) -> set[str]:
    """Return the spellings under which a secret may stand in text."""
    forms = {secret, quote(secret, safe=""), quote_plus(secret, safe=""), quote(secret)}
    for ascii_only in (True, False):
        escaped = json.dumps(secret, ensure_ascii=ascii_only)[1:-1]
        forms.add(escaped)
        forms.add(json.dumps(escaped, ensure_ascii=ascii_only)[1:-1])  # JSON inside JSON: arguments of a call
    forms.add(secret.replace("'", "'\\''"))  # as a shell quotes it
    raw = secret.encode("utf-8", "replace")
    forms.update((raw.hex(), raw.hex().upper()))
    for shift in range(3):
        # Base64 of a longer text that holds the secret: which letters stand for it depends on where it begins; the
        # first and last ones are shared with its neighbours and are left out.
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            encoded = encode(b"\0" * shift + raw).rstrip(b"=").decode("ascii")
            start = 0 if shift == 0 else shift + 1
            end = len(encoded) if (shift + len(raw)) % 3 == 0 else len(encoded) - 1
            core = encoded[start:end]
            if len(core) >= MIN_LENGTH:
                forms.add(core)
    return {form for form in forms if len(form) >= MIN_LENGTH}
