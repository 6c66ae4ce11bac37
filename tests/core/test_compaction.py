"""What a model reads that summarises a transcript."""

from __future__ import annotations

from hermes.core.compaction import compaction_request
from hermes.core.messages import Image, Steer, Text, User, plain_text


def test_pictures_are_named_where_they_went_along() -> None:
    picture = Image(media_type="image/png", data="AAAA")
    entries = [User(content=(Text("look "), picture)), Steer(text="rather this ", receipt="r", pictures=(picture,))]
    read = plain_text(compaction_request(entries, max_chars=1_000).content)
    assert "USER: look [image/png]\nUSER CORRECTION: rather this [image/png]\n" in read
