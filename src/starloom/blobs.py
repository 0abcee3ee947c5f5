"""Bytes as a value among JSON values: what a tool returns for a screenshot, and what the wire carries as it is.

Made by tools, carried by `aip.files`, handed out by the fleet. Wherever pydantic writes JSON, a blob becomes its data
URL by itself; so only who wants the bytes has to know of it.
"""

import base64
from typing import Any, ClassVar

from pydantic_core import SchemaSerializer, core_schema


def _written(blob: Any) -> str:  # noqa: ANN401 - a Blob; the class is not there yet
    return str(blob.data_url())


_AS_DATA_URL = core_schema.plain_serializer_function_ser_schema(_written, return_schema=core_schema.str_schema())


class Blob:
    """Bytes and their media type; equal by content. The bytes must not change."""

    __slots__ = ("body", "mime")
    __pydantic_serializer__: ClassVar[SchemaSerializer] = SchemaSerializer(
        core_schema.any_schema(serialization=_AS_DATA_URL)
    )

    def __init__(self, mime: str, body: bytes) -> None:
        self.mime = mime
        self.body = body

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Blob) and (self.mime, self.body) == (other.mime, other.body)

    def __hash__(self) -> int:
        return hash((self.mime, self.body))

    def __repr__(self) -> str:
        return f"Blob({self.mime!r}, {len(self.body)} bytes)"

    def data_url(self) -> str:
        """Return it as text, a third longer."""
        return f"data:{self.mime};base64,{self.base64()}"

    def base64(self) -> str:
        """Return the bytes as base64."""
        return base64.b64encode(self.body).decode("ascii")

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: object, _handler: object) -> core_schema.CoreSchema:
        return core_schema.json_or_python_schema(
            json_schema=core_schema.str_schema(),
            python_schema=core_schema.is_instance_schema(cls),
            serialization=_AS_DATA_URL,
        )


def without_blobs(value: Any) -> Any:  # noqa: ANN401 - a JSON value, with blobs in it
    """Return a value with data URLs in place of blobs; itself when there are none."""
    if isinstance(value, Blob):
        return value.data_url()
    if isinstance(value, list):
        return [without_blobs(item) for item in value] if any(map(_may_hold, value)) else value
    if isinstance(value, dict):
        changed = any(map(_may_hold, value.values()))
        return {key: without_blobs(item) for key, item in value.items()} if changed else value
    return value


def _may_hold(value: object) -> bool:
    return isinstance(value, Blob | list | dict)
