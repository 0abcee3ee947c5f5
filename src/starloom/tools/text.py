"""Bytes of a file as text, honestly: an encoding is recognised or the file is refused as not text.

Called by the tools that read text files.
"""

from starloom.tools.toolset import ToolFailure

_MARKS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))


def decode(content: bytes, name: str) -> str:
    """Return the text of a file: by its byte order mark, else UTF-8, else Windows-1252; line ends become newlines.

    Raises:
        ToolFailure: the content is not text.
    """
    encodings = [encoding for mark, encoding in _MARKS if content.startswith(mark)] or ["utf-8", "cp1252"]
    for encoding in encodings:
        try:
            text = content.decode(encoding)
        except UnicodeDecodeError:
            continue
        if "\x00" in text:
            break
        return text.replace("\r\n", "\n").replace("\r", "\n")
    raise ToolFailure(f"{name!r} is not a text file.", path=name)
