"""Server-sent events, whatever pieces they arrive in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.providers.sse import EventParser, ServerEvent

STREAMS: list[tuple[bytes, list[ServerEvent]]] = [
    (b'data: {"a": 1}\n\ndata: [DONE]\n\n', [("", b'{"a": 1}'), ("", b"[DONE]")]),
    (b"data: a\r\n\r\ndata: b\r\n\r\n", [("", b"a"), ("", b"b")]),
    (b"event: ping\ndata: a\ndata:b\n\n: a comment\n\ndata: c\n\n", [("ping", b"a\nb"), ("", b"c")]),
    (b'data: a\n\n{"error": "late"}\n\n', [("", b"a"), ("", b'{"error": "late"}')]),
    (b"\n\n\ndata: a\n\n\nevent: x\n\ndata: b\n\n", [("", b"a"), ("", b"b")]),
    (b"data: a\n\nevent: x\r\ndata: b\r\n\r\ndata: c\n\n", [("", b"a"), ("x", b"b"), ("", b"c")]),
    ("data: ж\n\n".encode(), [("", "ж".encode())]),
]


def parsed(pieces: list[bytes]) -> list[ServerEvent]:
    parser = EventParser()
    found = [event for piece in pieces for event in parser.feed(piece)]
    return found + parser.close()


@pytest.mark.parametrize(("stream", "events"), STREAMS)
def test_a_stream_cut_anywhere_gives_the_same_events(stream: bytes, events: list[ServerEvent]) -> None:
    assert parsed([stream]) == events
    assert parsed([stream[place : place + 1] for place in range(len(stream))]) == events
    for cut in range(len(stream)):
        assert parsed([stream[:cut], stream[cut:]]) == events


def test_an_event_is_given_as_soon_as_it_is_complete() -> None:
    parser = EventParser()
    assert parser.feed(b"data: a\n") == []
    assert parser.feed(b"\ndata: b\n\ndata") == [("", b"a"), ("", b"b")]
    assert parser.feed(b": c") == []
    assert parser.close() == [("", b"c")]


@given(
    st.lists(
        st.sampled_from([b"data: a", b"data:b", b"event: c", b"\n", b"\n\n", b"\r\n", b"\r", b": d", b'{"e": 1}', b"f"])
    ),
    st.lists(st.integers(0, 60)),
)
def test_where_the_network_cuts_changes_nothing(lines: list[bytes], places: list[int]) -> None:
    stream = b"".join(lines)
    cuts = [0, *sorted(place for place in places if place < len(stream)), len(stream)]
    assert parsed([stream[a:b] for a, b in zip(cuts, cuts[1:], strict=False)]) == parsed([stream])
