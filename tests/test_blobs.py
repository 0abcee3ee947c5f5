"""Bytes among JSON values: a data URL for whoever writes JSON, themselves for whoever asks."""

import json

from pydantic import BaseModel, TypeAdapter
from pydantic_core import to_json

from starloom.blobs import Blob, without_blobs

PIXEL = Blob("image/png", b"\x89PNG")
URL = "data:image/png;base64,iVBORw=="


class Holder(BaseModel):
    value: object


def test_blob_is_its_data_url_in_json():
    assert PIXEL.data_url() == URL
    assert json.loads(to_json({"a": [PIXEL]})) == {"a": [URL]}
    assert json.loads(Holder(value=PIXEL).model_dump_json()) == {"value": URL}
    adapter = TypeAdapter(Blob)
    assert adapter.dump_python(PIXEL, mode="json") == URL
    assert adapter.json_schema(mode="serialization") == {"type": "string"}


def test_blobs_are_equal_by_content_and_show_no_bytes():
    assert {PIXEL, Blob("image/png", b"\x89PNG")} == {PIXEL}
    assert Blob("image/jpeg", PIXEL.body) != PIXEL
    assert repr(PIXEL) == "Blob('image/png', 4 bytes)"


def test_values_without_blobs_are_not_copied():
    for value in ("text", 1, None, [1, 2], {"a": 1}):
        assert without_blobs(value) is value
    assert without_blobs({"a": [PIXEL, {"b": PIXEL}], "c": 1}) == {"a": [URL, {"b": URL}], "c": 1}
