"""A page of HTML as Markdown, without scripts and navigation.

It is a program that reads a body from its input and writes the page to its output: a hostile page can make a parser
work for ever, and a process is ended where a thread is not. It fetches nothing.
"""

from __future__ import annotations

import re
import resource
import sys
from typing import Any
from urllib.parse import urljoin, urlsplit

import msgspec
from bs4 import BeautifulSoup, Comment, Doctype, Tag
from markdownify import MarkdownConverter

from hermes.tools.web_text import Page, PageSource, decoded, is_html, plain_page

__all__ = ["main", "page_of"]

#: Parts of a page that are no text of it.
_DROPPED = (
    "script", "style", "noscript", "template", "nav", "svg", "canvas", "iframe", "object", "embed", "form", "button",
    "input", "select", "textarea", "dialog", "audio", "video", "link", "meta", "head",
)  # fmt: skip
#: Parts that frame a page; inside an article they belong to it.
_FRAME = ("header", "footer", "aside")
_BLANK_LINES = re.compile(r"\n[ \t]*(?:\n[ \t]*){2,}")
#: Tags nested deeper are no page a person reads; they would take time and stack without end.
_MAX_TAGS = 60_000


def page_of(source: PageSource) -> Page:
    """Return what a body says."""
    if is_html(source):
        return _markdown(decoded(source.data, source.charset, cut=source.cut), source.url)
    return plain_page(source)


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
