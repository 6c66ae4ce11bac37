"""A fetched body as text: what kind it is, and its letters out of its bytes. Knows no parser; `web_page` makes HTML
readable."""

from __future__ import annotations

import codecs
import re

import msgspec

__all__ = ["Page", "PageSource", "decoded", "is_html", "is_text", "plain_page"]

_HTML = frozenset({"text/html", "application/xhtml+xml"})
_TEXT = re.compile(r"text/|application/(?:[\w.+-]+\+)?(?:json|xml|yaml|x-yaml|toml|javascript|x-ndjson|sql)\b")
_META = re.compile(rb"<meta[^>]{0,200}charset\s{0,9}=\s{0,9}[\"']?\s{0,9}([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """What a page says: its title and its text, Markdown where it was HTML."""

    title: str
    text: str


class PageSource(msgspec.Struct, frozen=True, kw_only=True):
    """A body and what came with it. `url` makes its links absolute, `cut` says that its end is missing."""

    data: bytes
    content_type: str = ""
    charset: str = ""
    url: str = ""
    cut: bool = False


def is_html(source: PageSource) -> bool:
    """Whether a body is a page of HTML; without a media type its beginning decides."""
    if source.content_type:
        return source.content_type in _HTML
    return re.search(rb"<(?:!doctype\s+html|html|body)\b", source.data[:2_048], re.IGNORECASE) is not None


def is_text(content_type: str) -> bool:
    """Whether a body of this media type can be read as text; an empty one is looked at."""
    return not content_type or content_type in _HTML or _TEXT.match(content_type) is not None


def decoded(data: bytes, charset: str, *, cut: bool = False) -> str:
    """Bytes as text: by a byte-order mark, the charset given with them, the page's own word, UTF-8, else Windows-1252.

    Never fails: bytes that fit nothing are replaced.
    """
    for mark, name in _BOMS:
        if data.startswith(mark):
            return data[len(mark) :].decode(name, "replace")
    said = _META.search(data[:2_048])
    for name in (charset, said.group(1).decode("ascii") if said else ""):
        try:
            if name and codecs.lookup(name).name not in ("utf-7", "idna", "punycode", "unicode_escape"):
                return data.decode(name, "replace")
        except (LookupError, ValueError, TypeError):
            continue  # no such charset: the page is wrong about itself
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        half = cut and error.start >= len(data) - 3  # the last letter was cut in two
        return data.decode("utf-8" if half else "cp1252", "replace")


def plain_page(source: PageSource) -> Page:
    """Return what a body says that is no HTML."""
    text = decoded(source.data, source.charset, cut=source.cut)
    return Page(title="", text=text.replace("\r\n", "\n").strip())
