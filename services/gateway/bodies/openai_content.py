"""Content of OpenAI messages as parts; the two wires spell the same things differently."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

from proctor.agent.v1 import agent_pb2 as pb
from services.chassis.canonical import canonical_json
from services.gateway.problems import BadInput


def content_parts(content: Any) -> list[pb.Part]:
    """Return the parts of a message's content: text, or a list of typed items of either wire."""
    if content is None or content == "":
        return []
    if isinstance(content, str):
        return [pb.Part(text=content)]
    if not isinstance(content, list):
        raise BadInput("a message's 'content' is text or a list of parts")
    return [part for item in content if (part := _part(item)) is not None]


def text_of(content: Any) -> str:
    """Return the text of a content, without its other parts."""
    return "".join(part.text for part in content_parts(content))


def tool_call(call_id: str, name: str, arguments: str) -> pb.ToolCall:
    """Return a call from an earlier message; arguments that are no JSON object are kept as they were written."""
    call = pb.ToolCall(call_id=call_id, name=name)
    try:
        value = json.loads(arguments or "{}")
    except json.JSONDecodeError:
        value = None
    if isinstance(value, dict):
        call.arguments_json = canonical_json(value)
    else:
        call.malformed_arguments = arguments
    return call


def _part(item: Any) -> pb.Part | None:
    if isinstance(item, str):
        return pb.Part(text=item)
    if not isinstance(item, dict):
        raise BadInput("a part of 'content' is an object with a 'type'")
    kind = item.get("type")
    if kind in {"text", "input_text", "output_text"}:
        text = str(item.get("text") or "")
        return pb.Part(text=text) if text else None
    if kind == "refusal":
        return pb.Part(text=str(item.get("refusal") or ""))
    if kind == "image_url":
        image = item.get("image_url")
        return pb.Part(image=media(image.get("url") if isinstance(image, dict) else image, "image/png"))
    if kind == "input_image":
        if item.get("file_id"):
            return pb.Part(image=pb.Media(artifact_id=str(item["file_id"])))
        return pb.Part(image=media(item.get("image_url"), "image/png"))
    if kind in {"file", "input_file"}:
        return pb.Part(file=_file(item.get("file") if kind == "file" else item))
    raise BadInput(
        f"parts of type '{kind}' are not supported; send text, images or files", metadata={"param": "content"}
    )


def _file(file: Any) -> pb.Media:
    if not isinstance(file, dict):
        raise BadInput("a file part holds 'file_id' or 'file_data'")
    name = str(file.get("filename") or "")
    if file.get("file_id"):
        return pb.Media(artifact_id=str(file["file_id"]), name=name)
    attached = media(file.get("file_data") or file.get("file_url"), "application/octet-stream")
    attached.name = name
    return attached


def media(url: Any, fallback: str) -> pb.Media:
    """Return the bytes of a data URL (of type `fallback` when it names none), or the reference that another URL is."""
    if not isinstance(url, str) or not url:
        raise BadInput("an image or file needs a URL, a data URL or an id")
    if not url.startswith("data:"):
        if not url.startswith(("http://", "https://")):
            raise BadInput(f"'{url[:40]}' is neither an http(s) nor a data URL")
        return pb.Media(url=url)
    head, comma, data = url.removeprefix("data:").partition(",")
    media_type, _, encoding = head.partition(";")
    if not comma or encoding != "base64":
        raise BadInput("a data URL has the form data:<type>;base64,<data>")
    try:
        inline = base64.b64decode(data, validate=True)
    except binascii.Error as error:
        raise BadInput(f"the data URL is not valid base64: {error}") from error
    return pb.Media(media_type=media_type or fallback, inline=inline)
