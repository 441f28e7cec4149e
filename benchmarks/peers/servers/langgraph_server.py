"""LangGraph as a library behind Starlette: the agent's text as server-sent events."""

import json

from graph_folder.weather_agent import agent
from starlette.applications import Starlette
from starlette.responses import StreamingResponse
from starlette.routing import Route


async def chat(request):
    question = {"messages": [{"role": "user", "content": (await request.json())["input"]}]}

    async def events():
        async for message, _ in agent.astream(question, stream_mode="messages"):
            if message.type == "AIMessageChunk" and message.content:
                yield f"data: {json.dumps({'text': message.content})}\n\n"
        yield "data: [DONE]\n\n"

    return StreamingResponse(events(), media_type="text/event-stream")


app = Starlette(routes=[Route("/chat", chat, methods=["POST"])])
