"""The OpenAI Agents SDK behind FastAPI: one agent with one tool, its text as server-sent events."""

import json

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from fastapi import Body, FastAPI
from fastapi.responses import StreamingResponse
from openai import AsyncOpenAI

set_tracing_disabled(disabled=True)


@function_tool
def current_weather(city: str = "Oslo") -> str:
    """Say how the weather is in a city."""
    return f"It snows in {city}."


agent = Agent(
    "assistant", instructions="Be brief.", model=OpenAIChatCompletionsModel("scripted", AsyncOpenAI()),
    tools=[current_weather],
)  # fmt: skip
app = FastAPI()


@app.post("/chat")
async def chat(input: str = Body(embed=True)):
    async def events():
        async for event in Runner.run_streamed(agent, input).stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                yield f"data: {json.dumps({'text': event.data.delta})}\n\n"
        yield "data: [DONE]\n\n"

    return StreamingResponse(events(), media_type="text/event-stream")
