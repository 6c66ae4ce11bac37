"""`web_extract` and `web_search` against a site on this machine."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from hermes.core.errors import ToolError
from hermes.core.scope import TaskScope
from hermes.core.tools import Tool, ToolEnv
from hermes.credentials.redact import Redactor
from hermes.tools.web import MAX_CHARACTERS, WebToolset
from hermes.tools.web_fetch import Fetcher
from hermes.tools.web_page import page_of
from hermes.tools.web_search import SEARCHERS, Searcher, searcher_for
from hermes.tools.web_text import PageSource, decoded
from tests.tools.place import call
from tests.tools.site import Names, Site

pytestmark = pytest.mark.anyio
KEY = "zq-live-0f9e8d7c6b5a4938"


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with Site() as opened:
        yield opened


def tools(
    site: Site, tmp_path: Path, fetcher: Fetcher | None = None, searcher: Searcher | None = None
) -> dict[str, Tool]:
    def search() -> Searcher:
        return searcher or searcher_for("", {}, site.session(), base=site.url("").rstrip("/"))

    toolset = WebToolset(search, fetcher or site.fetcher(), clean=Redactor({"K": KEY}).text)
    scope = TaskScope(task_id="t", session_id="s", root_id="t", workspace=str(tmp_path))
    return {tool.name: tool for tool in toolset.build(ToolEnv(scope=scope, state_dir=str(tmp_path / "state")))}


async def extract(
    site: Site, tmp_path: Path, *urls: str, fetcher: Fetcher | None = None, **more: Any
) -> dict[str, Any]:
    output = await call(tools(site, tmp_path, fetcher)["web_extract"], urls=list(urls), **more)
    answer = output.details
    assert isinstance(answer, dict) and output.is_error == all("error" in page for page in answer["results"])
    return answer


async def test_a_page_is_markdown_without_scripts_and_navigation(site: Site, tmp_path: Path) -> None:
    answer = await extract(site, tmp_path, site.url("/"))
    assert "data" in answer["note"] and list(answer) == ["note", "results"]
    page = answer["results"][0]
    assert page["url"] == site.url("/") and page["title"] == "A page" and "final_url" not in page
    link = f"[link]({site.url('/two?q=1')})"
    assert page["content"] == f"# Heading\n\nOne {link} and **bold**.\n\nSecond.\n\n- a\n- b\n\n[picture: a cat]"
    assert set(site.seen[0][1]) == {"Host", "Accept", "Accept-Encoding", "User-Agent"}  # no cookie, no key


async def test_redirects_are_followed_to_the_final_address(site: Site, tmp_path: Path) -> None:
    names = Names({"one.test": ["127.0.0.1"], "two.test": ["127.0.0.1"]})
    site.redirect("/a", site.url("/b?x=1", "two.test"), 301)
    site.redirect("/b", "c", 307)
    site.add("/c", "<p>here")
    url = site.url("/a", "one.test")
    page = (await extract(site, tmp_path, url, fetcher=site.fetcher(names)))["results"][0]
    assert page["content"] == "here" and page["final_url"] == site.url("/c", "two.test")


@pytest.mark.parametrize(
    "target",
    [
        "http://127.0.0.1:1/x", "http://10.0.0.1/", "http://169.254.169.254/latest/meta-data/", "http://[::1]/",
        "http://2130706433/", "http://0177.0.0.1/", "http://[::ffff:7f00:1]/", "file:///etc/passwd", "//user@x.test/",
        "http://inside.test/", "http://both.test/", "gopher://x.test/", "http://[::1",
    ],
)  # fmt: skip
async def test_each_redirect_is_judged_again(site: Site, tmp_path: Path, target: str) -> None:
    # The site itself is excepted by its address alone, everything else on this machine is not.
    names = Names({"site.test": ["127.0.0.2"], "inside.test": ["10.0.0.7"], "both.test": ["8.8.8.8 127.0.0.1"]})
    site.redirect("/away", target)
    fetcher = site.fetcher(names, ["127.0.0.2/32"])
    page = (await extract(site, tmp_path, site.url("/away", "site.test"), fetcher=fetcher))["results"][0]
    assert "error" in page and len(site.seen) <= 1


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "0x7f000001", "2130706433", "127.1", "[::1]", "[::ffff:127.0.0.1]", "127.0.0.1."]
)
async def test_this_machine_is_not_read(site: Site, tmp_path: Path, host: str) -> None:
    names = Names({"localhost": ["127.0.0.1"], "127.0.0.1.": ["127.0.0.1"], "0x7f000001": ["127.0.0.1"]})
    page = (await extract(site, tmp_path, site.url("/", host), fetcher=site.fetcher(names, ())))["results"][0]
    assert "error" in page and not site.seen


async def test_a_name_that_changes_its_mind_reaches_nothing(site: Site, tmp_path: Path) -> None:
    names = Names({"rebind.test": ["8.8.8.8", "127.0.0.1"]})
    assert (await names.resolve("rebind.test"))[0]["host"] == "8.8.8.8"  # what a check before would have seen
    page = (await extract(site, tmp_path, site.url("/", "rebind.test"), fetcher=site.fetcher(names, ())))["results"][0]
    assert "rebind.test leads to 127.0.0.1" in page["error"] and "web.allowed_networks" in page["error"]
    assert not site.seen


async def test_redirects_end(site: Site, tmp_path: Path) -> None:
    site.redirect("/loop", "/loop")
    page = (await extract(site, tmp_path, site.url("/loop")))["results"][0]
    assert "redirects more than 5 times" in page["error"] and len(site.seen) == 6


async def test_a_host_with_a_rule_is_not_reached_by_a_redirect(site: Site, tmp_path: Path) -> None:
    names = Names({"one.test": ["127.0.0.1"], "ruled.test": ["127.0.0.1"]})
    site.redirect("/a", site.url("/", "ruled.test"))
    fetcher = site.fetcher(names, may_follow=lambda host: host != "ruled.test")
    page = (await extract(site, tmp_path, site.url("/a", "one.test"), fetcher=fetcher))["results"][0]
    assert "a host with a rule of its own" in page["error"] and site.url("/", "ruled.test") in page["error"]


async def test_size_and_time_are_limited(site: Site, tmp_path: Path) -> None:
    fetcher = site.fetcher(timeout=60, max_bytes=200_000)
    (flood,) = (await extract(site, tmp_path, site.url("/flood"), fetcher=fetcher))["results"]
    assert "incomplete" in flood and "full_text" in flood
    fetcher = site.fetcher(timeout=0.3)
    (silence,) = (await extract(site, tmp_path, site.url("/silence"), fetcher=fetcher))["results"]
    assert silence["error"] == f"{site.url('/silence')} did not answer in full within 0.3 s."


async def test_what_is_compressed_is_limited_by_what_it_unfolds_to(site: Site, tmp_path: Path) -> None:
    bomb = gzip.compress(b"\0x" * 20_000_000)
    site.add("/bomb", bomb, "text/plain", headers={"Content-Encoding": "gzip"})
    fetcher = site.fetcher(max_bytes=100_000)
    page = (await extract(site, tmp_path, site.url("/bomb"), fetcher=fetcher))["results"][0]
    assert "incomplete" in page
    assert Path(page["full_text"]).stat().st_size <= 100_000


@pytest.mark.parametrize(
    ("content_type", "body", "text"),
    [
        ("text/html; charset=windows-1251", "<p>Привет".encode("cp1251"), "Привет"),
        ("text/html", '<meta charset="koi8-r"><p>Привет'.encode("koi8-r"), "Привет"),
        ("text/html; charset=nonsense", "<p>Grüße ± 🙂".encode(), "Grüße ± 🙂"),
        ("text/html", b"<p>caf\xe9", "café"),
        ("text/plain", "\ufeffmit BOM".encode("utf-16"), "mit BOM"),
        ("text/plain; charset=utf-7", b"+ADw-script+AD4-", "+ADw-script+AD4-"),
        ("text/html; charset=utf-8", b"<p>a\xffb", "a\ufffdb"),
        ("application/json", b'{"a": 1}', '{"a": 1}'),
        ("application/atom+xml", b"<feed/>", "<feed/>"),
        ("text/markdown", b"# as it is", "# as it is"),
    ],
)
async def test_charsets_and_kinds_of_text(
    site: Site, tmp_path: Path, content_type: str, body: bytes, text: str
) -> None:
    site.add("/x", body, content_type)
    page = (await extract(site, tmp_path, site.url("/x")))["results"][0]
    assert page["content"].strip("\ufeff") == text


@pytest.mark.parametrize(
    ("content_type", "body"),
    [("application/pdf", b"%PDF-1.7"), ("image/png", b"\x89PNG"), ("application/octet-stream", b"x")],
)
async def test_what_is_no_text_is_refused(site: Site, tmp_path: Path, content_type: str, body: bytes) -> None:
    site.add("/x", body, content_type)
    page = (await extract(site, tmp_path, site.url("/x")))["results"][0]
    assert "only pages and text can be read" in page["error"]


def test_without_a_media_type_the_beginning_decides() -> None:
    assert page_of(PageSource(data=b"<!DOCTYPE html><p>guessed")).text == "guessed"
    assert page_of(PageSource(data=b"a <b> c")).text == "a <b> c"


def test_a_letter_cut_in_two_does_not_change_the_charset() -> None:
    data = "Grüße und ü".encode()[:-1]
    assert decoded(data, "", cut=True) == "Grüße und \ufffd"
    assert decoded(data, "").startswith("GrÃ")


async def test_one_page_that_fails_leaves_the_others(site: Site, tmp_path: Path) -> None:
    answer = await extract(site, tmp_path, site.url("/none"), site.url("/"), "http://nowhere.invalid/", site.url("/"))
    none, good, nowhere = answer["results"]
    assert none["error"] == f"{site.url('/none')} answered 404 Not Found."
    assert good["title"] == "A page" and "cannot be reached" in nowhere["error"]


async def test_a_long_page_is_cut_and_kept_whole(site: Site, tmp_path: Path) -> None:
    text = "begin " + "word " * 40_000 + "end"
    site.add("/long", text, "text/plain")
    page = (await extract(site, tmp_path, site.url("/long")))["results"][0]
    assert page["content"].startswith("begin") and page["content"].endswith("end")
    assert len(page["content"]) < MAX_CHARACTERS + 300 and page["full_text"] in page["content"]
    kept = Path(page["full_text"])
    assert kept.read_text() == text and kept.stat().st_mode & 0o777 == 0o600
    short = (await extract(site, tmp_path, site.url("/long"), room=8_000))["results"][0]
    assert len(short["content"]) < 8_300  # a quarter of the room that is left, in tokens


@pytest.mark.parametrize("html", ["<a" * 100_000, "<div>" * 60_000, "<b>" * 3_000 + "deep"])
async def test_a_page_that_is_built_to_last_does_not_hold_the_loop(site: Site, tmp_path: Path, html: str) -> None:
    site.add("/trap", html)
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await anyio.sleep(0.01)
            ticks += 1

    with anyio.move_on_after(1.5):
        async with anyio.create_task_group() as group:
            group.start_soon(tick)
            await extract(site, tmp_path, site.url("/trap"))
            await anyio.sleep_forever()
    assert ticks > 3  # of some 150 while it was looked at
    with anyio.fail_after(20):  # cancelled or done, the loop is free
        for _ in range(20):
            await anyio.sleep(0.01)


async def test_a_key_is_not_sent_in_an_address_or_a_query(site: Site, tmp_path: Path) -> None:
    clean = Redactor({"K": KEY}).text
    for url in (site.url(f"/?leak={KEY}"), site.url(f"/{KEY.encode().hex()}"), site.url(f"/?a=b#{KEY}")):
        page = (await extract(site, tmp_path, url, fetcher=site.fetcher(clean=clean)))["results"][0]
        assert "was not sent" in page["error"] and KEY not in page["error"]
    site.redirect("/r", f"/?leak={KEY}")
    page = (await extract(site, tmp_path, site.url("/r"), fetcher=site.fetcher(clean=clean)))["results"][0]
    assert "was not sent" in page["error"] and KEY not in page["error"]
    with pytest.raises(ToolError, match="was not sent"):
        await call(tools(site, tmp_path)["web_search"], query=f"what is {KEY}")
    assert [path for path, _, _ in site.seen] == ["/r"]


async def test_a_key_on_a_page_enters_no_file(site: Site, tmp_path: Path) -> None:
    site.add("/x", f"{KEY} " + "x" * 80_000, "text/plain")
    page = (await extract(site, tmp_path, site.url("/x")))["results"][0]
    assert KEY not in page["content"] and KEY not in Path(page["full_text"]).read_text()


async def test_wrong_arguments_say_what_is_wanted(site: Site, tmp_path: Path) -> None:
    found = tools(site, tmp_path)
    for name, arguments in (
        ("web_extract", {"urls": []}), ("web_extract", {"urls": ["http://a.test"] * 6}), ("web_extract", {}),
        ("web_search", {"query": "a", "limit": 0}), ("web_search", {"query": "a" * 2_000}),
        ("web_search", {"query": " "}),
    ):  # fmt: skip
        with pytest.raises(ToolError):
            await call(found[name], **arguments)
    assert not site.seen


# -- searching --------------------------------------------------------------------------------------------------------

DUCK = """<div class="result results_links result--ad"><a class="result__a" href="https://ad.test">Ad</a></div>
<div class="result"><a class="result__a" href="//duckduckgo.com/l/?uddg=https%3A%2F%2Fone.test%2Fa%3Fb%3D1&rut=x">The
 <b>one</b></a><a class="result__snippet">About <b>one</b></a></div>
<div class="result"><a class="result__a" href="https://two.test/">Two</a></div>
<div class="result"><a class="result__a" href="//duckduckgo.com/l/?uddg=javascript%3Aalert(1)">Bad</a></div>"""
ROWS = [{"title": "The <strong>one</strong>", "url": "https://one.test/a?b=1", "description": "About &amp; one"}]
ANSWERS: dict[str, tuple[str, str, str]] = {
    "brave": ("/res/v1/web/search", json.dumps({"web": {"results": ROWS}}), "application/json"),
    "tavily": ("/search", json.dumps({"results": [{**ROWS[0], "content": "About &amp; one"}]}), "application/json"),
    "exa": ("/search", json.dumps({"results": [{**ROWS[0], "highlights": ["About &amp; one"]}]}), "application/json"),
    "searxng": ("/search", json.dumps({"results": [{**ROWS[0], "content": "About &amp; one"}]}), "application/json"),
    "duckduckgo": ("/html/", DUCK, "text/html"),
}


@pytest.mark.parametrize("service", SEARCHERS, ids=lambda service: str(service.name))
async def test_each_service_is_asked_and_read(site: Site, tmp_path: Path, service: Any) -> None:
    path, body, content_type = ANSWERS[service.name]
    site.add(path, body, content_type)
    base = site.url("").rstrip("/")
    key = base if service.name == "searxng" else KEY
    searcher = searcher_for(service.name, {service.key: key}, site.session(), base=base)
    output = await call(tools(site, tmp_path, searcher=searcher)["web_search"], query="the  one", limit=2)
    assert isinstance(output.details, dict)
    results = output.details["data"]["web"]
    assert results[0]["title"] == "The one" and results[0]["url"] == "https://one.test/a?b=1"
    assert results[0]["position"] == 1 and results[0]["description"] in ("About & one", "About one")
    assert len(results) == (2 if service.name == "duckduckgo" else 1)
    path_qs, headers, sent = site.seen[0]
    assert "the+one" in path_qs + sent or "the one" in sent
    assert (KEY in str(headers)) == (service.name in ("brave", "tavily", "exa"))


async def test_the_service_is_the_named_one_or_the_first_with_a_key(site: Site) -> None:
    session = site.session()
    assert searcher_for("", {}, session).name == "duckduckgo"
    assert searcher_for("", {"EXA_API_KEY": "k", "SEARXNG_URL": "u"}, session).name == "exa"
    assert searcher_for("duckduckgo", {"EXA_API_KEY": "k"}, session).name == "duckduckgo"
    with pytest.raises(ToolError, match="TAVILY_API_KEY is not set"):
        searcher_for("tavily", {}, session)
    with pytest.raises(ToolError, match="'firecrawl', which is not in this release; it can be brave"):
        searcher_for("firecrawl", {}, session)
    assert "secret" not in repr(searcher_for("exa", {"EXA_API_KEY": "secret"}, session))


@pytest.mark.fault("B139")
@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (401, "", "refuses the key in BRAVE_SEARCH_API_KEY"), (429, "", "too many searches"), (500, "", "answered 500"),
        (302, "", "answered 302"), (200, "<html>", "no JSON"), (200, "x" * 1_100_000, "larger than"),
    ],
)  # fmt: skip
async def test_a_service_that_refuses_is_an_answer(
    site: Site, tmp_path: Path, status: int, body: str, words: str
) -> None:
    site.add("/res/v1/web/search", body, "text/html", status=status, headers={"Location": "https://elsewhere.test/"})
    base = site.url("").rstrip("/")
    searcher = searcher_for("brave", {"BRAVE_SEARCH_API_KEY": KEY}, site.session(), base=base)
    with pytest.raises(ToolError, match=words) as caught:
        await call(tools(site, tmp_path, searcher=searcher)["web_search"], query="x")
    assert KEY not in str(caught.value) and len(site.seen) == 1


async def test_the_question_whether_a_person_is_there_is_named(site: Site, tmp_path: Path) -> None:
    site.add("/html/", '<form id="challenge-form"></form>', status=202)
    with pytest.raises(ToolError, match="wants to see a person"):
        await call(tools(site, tmp_path)["web_search"], query="x")


async def test_nothing_found_is_said(site: Site, tmp_path: Path) -> None:
    site.add("/html/", "<p>No results.</p>")
    output = await call(tools(site, tmp_path)["web_search"], query="x")
    assert output.details == {
        "success": True, "note": "duckduckgo found nothing; try other words.", "data": {"web": []}
    }  # fmt: skip
