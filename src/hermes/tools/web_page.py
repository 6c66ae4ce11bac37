"""A fetched body as text: HTML as Markdown without scripts and navigation, other text as it is.

It is also a program that reads a body from its input and writes the page to its output: a hostile page can make a
parser work for ever, and a process is ended where a thread is not. It fetches nothing.
"""

from __future__ import annotations

import codecs
import re
import resource
import sys
from typing import Any
from urllib.parse import urljoin, urlsplit

import msgspec
from bs4 import BeautifulSoup, Comment, Doctype, Tag
from markdownify import MarkdownConverter

__all__ = ["Page", "PageSource", "decoded", "is_html", "is_text", "main", "page_of"]

_HTML = frozenset({"text/html", "application/xhtml+xml"})
_TEXT = re.compile(r"text/|application/(?:[\w.+-]+\+)?(?:json|xml|yaml|x-yaml|toml|javascript|x-ndjson|sql)\b")
#: Parts of a page that are no text of it.
_DROPPED = (
    "script", "style", "noscript", "template", "nav", "svg", "canvas", "iframe", "object", "embed", "form", "button",
    "input", "select", "textarea", "dialog", "audio", "video", "link", "meta", "head",
)  # fmt: skip
#: Parts that frame a page; inside an article they belong to it.
_FRAME = ("header", "footer", "aside")
_BLANK_LINES = re.compile(r"\n[ \t]*(?:\n[ \t]*){2,}")
_META = re.compile(rb"<meta[^>]{0,200}charset\s{0,9}=\s{0,9}[\"']?\s{0,9}([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
#: Tags nested deeper are no page a person reads; they would take time and stack without end.
_MAX_TAGS = 60_000


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


def page_of(source: PageSource) -> Page:
    """Return what a body says."""
    text = decoded(source.data, source.charset, cut=source.cut)
    if is_html(source):
        return _markdown(text, source.url)
    return Page(title="", text=text.replace("\r\n", "\n").strip())


class _Converter(MarkdownConverter):
    """Markdown with absolute links and without pictures that stand in the page itself."""

    def __init__(self, url: str) -> None:
        super().__init__(heading_style="ATX", bullets="-", autolinks=True)
        self._url = url

    def _target(self, el: Tag, name: str) -> str:
        value = str(el.get(name) or "").strip()
        try:
            joined = urljoin(self._url, value)
            return joined if urlsplit(joined).scheme in ("http", "https", "mailto") else ""
        except ValueError:
            return ""

    def convert_a(self, el: Tag, text: str, parent_tags: Any) -> str:
        """A link, or its text alone where it leads nowhere."""
        target = self._target(el, "href")
        if not target or not text.strip() or str(el.get("href") or "").startswith("#"):
            return text
        el["href"] = target
        return str(super().convert_a(el, text, parent_tags))  # type: ignore[misc]

    def convert_img(self, el: Tag, text: str, parent_tags: Any) -> str:
        """The description of a picture."""
        words = " ".join(str(el.get("alt") or "").split())
        return f"[picture: {words}]" if words else ""


#: A tag whose end HTML lets one leave out, the ones before it that it ends, and what it never looks beyond.
_ENDS = {
    "li": ({"li"}, {"ul", "ol", "menu"}),
    "p": ({"p"}, {"div", "li", "td", "th", "section", "article", "main", "body"}),
    "dt": ({"dt", "dd"}, {"dl"}),
    "dd": ({"dt", "dd"}, {"dl"}),
    "td": ({"td", "th"}, {"table"}),
    "th": ({"td", "th"}, {"table"}),
    "tr": ({"tr"}, {"table"}),
}


def _end_open_tags(soup: BeautifulSoup) -> None:
    """Move what stands inside an element that it should have ended behind it: the parser knows no implied ends."""
    for tag in soup.find_all(list(_ENDS)):
        ended, bounds = _ENDS[tag.name]
        for count, parent in enumerate(tag.parents):
            if parent.name in ended:
                parent.insert_after(tag.extract())
                break
            if parent.name in bounds or count > 8:
                break


def _markdown(text: str, url: str) -> Page:
    soup = BeautifulSoup(text, "html.parser")
    title = " ".join(soup.title.get_text(" ").split()) if soup.title is not None else ""
    for piece in soup.find_all(string=lambda found: isinstance(found, (Comment, Doctype))):
        piece.extract()
    for tag in soup.find_all(_DROPPED):
        tag.decompose()
    _end_open_tags(soup)
    main = soup.find("main") or soup.find("article") or soup.body or soup
    for tag in main.find_all(_FRAME) if isinstance(main, Tag) else ():
        if tag.find_parent("article") is None:
            tag.decompose()
    body: str
    try:
        if len(main.find_all(True, limit=_MAX_TAGS)) >= _MAX_TAGS:
            raise RecursionError
        body = str(_Converter(url).convert_soup(main))
    except RecursionError:  # nested deeper than the converter can follow: its text alone
        body = main.get_text("\n")
    lines = "\n".join(line.rstrip() for line in body.splitlines())
    return Page(title=title[:300], text=_BLANK_LINES.sub("\n\n", lines).strip())


#: What the program may use: seconds of the processor, bytes of memory.
_SECONDS, _MEMORY = 20, 1024 * 1024 * 1024


def main() -> None:
    """Read a `PageSource` from stdin, write its `Page` to stdout, both as MessagePack."""
    resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS + 1))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    source = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=PageSource)
    sys.stdout.buffer.write(msgspec.msgpack.encode(page_of(source)))


if __name__ == "__main__":
    main()
