"""Writes the frames of one step on the Responses wire, numbered, while the state moves on with them."""

from __future__ import annotations

from typing import Any

from services.gateway.projections import response_items as items
from services.gateway.projections.response_items import Frame
from services.gateway.projections.response_state import IN_PROGRESS, State
from services.gateway.stepping import changed


class Writer:
    """The state being made by one step, and its frames."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.frames: list[Frame] = []

    def set(self, **changes: Any) -> None:
        """Change fields of the state."""
        self.state = changed(self.state, **changes)

    def emit(self, kind: str, **fields: Any) -> None:
        """Add a frame with the next number."""
        self.frames.append({"type": kind, "sequence_number": self.state.number, **fields})
        self.set(number=self.state.number + 1)

    def emit_place(self, kind: str, **fields: Any) -> None:
        """Add a frame about the last item."""
        place = {"item_id": self.state.output[-1]["id"], "output_index": len(self.state.output) - 1}
        self.emit(kind, **place, content_index=0, **fields)

    def emit_part(self, kind: str, part: Frame) -> None:
        """Add a frame about the last item's content part."""
        self.emit_place(kind, part=part)

    def add(self, item: Frame, kind: str) -> None:
        """Begin an output item; `kind` says what of it is still written, if anything."""
        self.set(output=(*self.state.output, item), open=kind, text="")
        self.emit("response.output_item.added", output_index=len(self.state.output) - 1, item=item)

    def finish_item(self, index: int, item: Frame) -> None:
        """Put an item's final form in place."""
        output = list(self.state.output)
        output[index] = item
        self.set(output=tuple(output))
        self.emit("response.output_item.done", output_index=index, item=item)

    def item_id(self, prefix: str) -> str:
        """Return the id of the next item, the same each time the run is folded."""
        return f"{prefix}_{self.state.id.removeprefix('resp_')}_{len(self.state.output)}"

    def open_message(self, model_call_id: str) -> None:
        """Begin a message."""
        self.close()
        self.add(items.message(self.item_id("msg"), "", [], IN_PROGRESS), "message")
        self.set(model_call_id=model_call_id)
        self.emit_part("response.content_part.added", items.text_part("", []))

    def write(self, kind: str, text: str, **extra: Any) -> None:
        """Append to what is written."""
        last = self.state.output[-1]
        place = {"item_id": last["id"], "output_index": len(self.state.output) - 1, "content_index": 0}
        self.emit(kind, **place, delta=text, **extra)
        self.set(text=self.state.text + text)

    def close(self) -> None:
        """Finish the item that is being written, if there is one."""
        text, kind = self.state.text, self.state.open
        if not kind:
            return
        item_id = self.state.output[-1]["id"]
        if kind == "message":
            notes = items.citations_of(text, self.state.citations)
            item = items.message(item_id, text, notes, "completed")
            for index, note in enumerate(notes):
                self.emit_place("response.output_text.annotation.added", annotation_index=index, annotation=note)
            self.emit_place("response.output_text.done", text=text, logprobs=[])
        else:
            item = items.reasoning(item_id, text, "completed")
            self.emit_place("response.reasoning_text.done", text=text)
        self.emit_part("response.content_part.done", item["content"][0])
        self.finish_item(len(self.state.output) - 1, item)
        self.set(open="", text="")
