"""A pydantic-ai agent with one tool behind its own AG-UI adapter."""

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.ui.ag_ui import AGUIAdapter
from starlette.applications import Starlette
from starlette.routing import Route

agent = Agent(OpenAIChatModel("scripted"), instructions="Be brief.")


@agent.tool_plain
def current_weather(city: str = "Oslo") -> str:
    """Say how the weather is in a city."""
    return f"It snows in {city}."


async def run(request):
    return await AGUIAdapter.dispatch_request(request, agent=agent)


app = Starlette(routes=[Route("/", run, methods=["POST"])])
