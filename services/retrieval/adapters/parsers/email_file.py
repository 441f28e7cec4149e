"""E-mail (.eml): who wrote to whom about what and when, and the text; attachments are named, not read."""

from __future__ import annotations

import email
import email.policy
from collections.abc import Iterator
from email.message import EmailMessage
from pathlib import Path

from services.retrieval.adapters.parsers.html import parse_markup
from services.retrieval.adapters.parsers.text import clean, paragraphs
from services.retrieval.domain.errors import UnreadableFile
from services.retrieval.domain.text import Block, Parsed

_HEADERS = ("From", "To", "Cc", "Date", "Subject")


def parse(path: Path, name: str) -> Parsed:
    """Return the headers and text of a message; plain text is preferred to HTML."""
    with path.open("rb") as file:
        message = email.message_from_binary_file(file, policy=email.policy.default)
    if not any(message[header] for header in _HEADERS):
        raise UnreadableFile("UNSUPPORTED_DOCUMENT", "the file is named as e-mail but has no headers of one")
    subject = clean(str(message["Subject"] or ""))
    return Parsed(media_type="message/rfc822", title=subject, blocks=_blocks(message))


def _blocks(message: EmailMessage) -> Iterator[Block]:
    told = [f"{header}: {clean(str(message[header]))}" for header in _HEADERS if message[header]]
    yield Block(text="\n".join(told))
    body = message.get_body(preferencelist=("plain", "html"))
    if body is not None:
        content = clean(body.get_content())
        html = body.get_content_subtype() == "html"
        yield from parse_markup(content).blocks if html else paragraphs(iter(content.splitlines()))
    attached = [clean(part.get_filename() or "unnamed") for part in message.iter_attachments()]
    if attached:
        yield Block(text=f"Attachments: {', '.join(attached)}")
