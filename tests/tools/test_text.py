import pytest

from starloom.tools.text import decode
from starloom.tools.toolset import ToolFailure


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_text_is_read_in_common_encodings(encoding):
    assert decode("Größe: 5 €\r\nzwei\rdrei".encode(encoding), "a") == "Größe: 5 €\nzwei\ndrei"


@pytest.mark.parametrize("content", [b"\x00", b"text\x00", b"\xff\xfe\x00", b"PK\x03\x04\x81\x8d\x00"])
def test_what_is_no_text_is_refused(content):
    with pytest.raises(ToolFailure, match="'a' is not a text file"):
        decode(content, "a")
