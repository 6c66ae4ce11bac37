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
from urllib.parse import quote, quote_plus

from hermes.credentials.patterns import KINDS, Kind

__all__ = ["Redactor"]

#: A shorter value would be found in ordinary text.
MIN_LENGTH = 8

#: Every well-known key holds a run of at least this many letters, digits, `_` and `-`, or one of the pieces that
#: `_may_hold` names; ordinary text seldom has any. Looking for a run takes one pass, whatever the number of kinds.
_RUN = 19
_AT, _EQUALS, _TILDE, _K = b"@=~K"


def _table(more: str) -> bytes:
    """Letters, digits and `more` become `x`, everything else a space."""
    kept = {code for code in range(128) if chr(code).isalnum() or chr(code) in more}
    return bytes(ord("x") if code in kept else 32 for code in range(256))


_WORD = _table("_-")
#: The same of what a key and what stands directly before it are made of.
_PART = _table("_-.:~/=@%+")
_LONG = b"x" * _RUN
#: What a key and what stands directly before it are made of: everything else becomes a space.
_KEPT = frozenset(b"_-.:~/=@%+")
_TOKEN = bytes(code if code < 128 and (chr(code).isalnum() or code in _KEPT) else 32 for code in range(256))
#: The anchors of all kinds that are looked for in long words only: in few bytes one search in place of sixty, in more
#: the sixty are faster.
_ANCHORS = tuple(anchor for kind in KINDS if not kind.loose for anchor in kind.anchors)
_IN_WORDS = re.compile(b"|".join(map(re.escape, _ANCHORS)))
_FEW_BYTES = 256
_LOOSE = tuple(kind for kind in KINDS if kind.loose)


class Redactor:
    """Replaces secrets by `[redacted:<label>]`.

    Args:
        secrets: values, or a mapping from label to value. Values below 8 characters are ignored.
    """

    def __init__(self, secrets: Iterable[str] | Mapping[str, str] = ()) -> None:
        self._labels: dict[str, str] = {}
        self._broken: tuple[bytes, ...] = ()  # forms without a long run: looked for one by one
        self._words: tuple[tuple[str, bytes], ...] = ()  # forms that are part of one long word
        self._others: tuple[tuple[str, bytes], ...] = ()
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
        coded = [(form, form.encode("utf-8", "replace")) for form in forms]
        whole = [data not in broken and data.translate(_TOKEN) == data for _, data in coded]
        self._words += tuple(pair for pair, inside in zip(coded, whole, strict=True) if inside)
        self._others += tuple(pair for pair, inside in zip(coded, whole, strict=True) if not inside)

    def text(self, text: str) -> str:
        """Return `text` without secrets. Text without any comes back as the same object."""
        if len(text) < MIN_LENGTH:
            return text
        data = text.encode("utf-8", "replace")
        found = self._found(data) if self._may_hold(data) else None
        return text if found is None else self._replaced(text, *found)

    def _may_hold(self, data: bytes) -> bool:
        """Whether encoded text may hold a secret; nearly all text does not, which is found out in a few passes.

        Pieces with a letter that text seldom holds are looked for where that stands. Written out, since it is asked of
        every row, and with `find`: `in` tries each time whether what is looked for is a number, and drops an exception.
        """
        found = data.find
        if (
            data.translate(_WORD).find(_LONG) >= 0
            or _AT in data
            or found(b"earer ") >= 0
            or found(b"asic ") >= 0
            or found(b"ccess_key") >= 0
            or found(b"whsec_") >= 0
            or found(b"glc_") >= 0
            or found(b"glsa_") >= 0
            or _EQUALS in data
            and (found(b"sig=") >= 0 or found(b"AccountKey=") >= 0)
            or _TILDE in data
            and found(b"Q~") >= 0
            or _K in data
            and (found(b"PRIVATE KEY") >= 0 or found(b"ccessKey") >= 0 or found(b"CCESS_KEY") >= 0)
        ):
            return True
        for form in self._broken:
            if found(form) >= 0:
                return True
        return False

    def _found(self, data: bytes) -> tuple[list[str], list[Kind]] | None:
        """The known forms that stand in encoded text and the kinds of keys that may; None: neither."""
        # Forms and kinds are many: most are looked for only in the few words that are long enough.
        long = b" ".join(_long_words(data))
        present = [form for form, coded in self._words if long.find(coded) >= 0]
        present += [form for form, coded in self._others if data.find(coded) >= 0]
        kinds = []
        for kind in KINDS if _anchored(long) else _LOOSE:
            found = data.find if kind.loose else long.find
            for anchor in kind.anchors:
                if found(anchor) >= 0:
                    kinds.append(kind)
                    break
        return (present, kinds) if present or kinds else None

    def _replaced(self, text: str, present: list[str], kinds: list[Kind]) -> str:
        labels = self._labels
        for form in sorted(present, key=len, reverse=True):
            text = text.replace(form, f"[redacted:{labels[form]}]")
        for kind in kinds:
            text = kind.pattern.sub(kind.replacement, text)
        return text

    def json_bytes(self, data: bytes) -> bytes:
        """Return encoded JSON without secrets. It stays valid JSON: what is put in holds nothing to be escaped.

        The data of a picture is left as it is: so many letters hold what looks like a key by chance, and a picture
        from which one was cut is none any more.
        """
        if data.find(b'"media_type":"image/') >= 0:
            pieces = _PICTURE.split(data)
            return b"".join(piece if number % 2 else self._json(piece) for number, piece in enumerate(pieces))
        return self._json(data)

    def _json(self, data: bytes) -> bytes:
        found = self._found(data) if self._may_hold(data) else None
        if found is None:
            return data
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            text = data.decode("utf-8", "surrogateescape")
        clean = self._replaced(text, *found)
        return data if clean is text or clean == text else clean.encode("utf-8", "surrogateescape")


#: The data of a picture in encoded JSON: PNG, JPEG, GIF or WebP, by how it begins.
_PICTURE = re.compile(
    rb'("media_type":"image/[a-z]{3,8}","data":"(?:iVBORw0KGgo|/9j/|R0lGOD|UklGR)[A-Za-z0-9+/]*={0,2}")'
)


def _long_words(data: bytes) -> set[bytes]:
    """The words that have room for a key, once each. Those of a long text are not all taken apart for it."""
    shape = data.translate(_PART)
    words, at = set(), shape.find(_LONG)
    while at >= 0:
        end = shape.find(b" ", at)
        end = len(shape) if end < 0 else end
        words.add(data[at:end])
        at = shape.find(_LONG, end)
    return words


def _anchored(words: bytes) -> bool:
    """Whether a kind that is one long word may stand there."""
    if len(words) < _FEW_BYTES:
        return _IN_WORDS.search(words) is not None
    found = words.find
    for anchor in _ANCHORS:
        if found(anchor) >= 0:
            return True
    return False


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
