"""A Haystack agent with one tool, served by Hayhooks on the Chat Completions wire."""

from hayhooks import BasePipelineWrapper, async_streaming_generator
from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import tool


@tool
def current_weather(city: str = "Oslo") -> str:
    """Say how the weather is in a city."""
    return f"It snows in {city}."


class PipelineWrapper(BasePipelineWrapper):
    """What Hayhooks runs under the name of this folder."""

    def setup(self):
        generator = OpenAIChatGenerator(model="scripted")
        self.pipeline = Agent(chat_generator=generator, tools=[current_weather], system_prompt="Be brief.")

    async def run_chat_completion_async(self, model, messages, body):
        asked = [ChatMessage.from_user(message["content"]) for message in messages if message["role"] == "user"]
        return async_streaming_generator(pipeline=self.pipeline, pipeline_run_args={"messages": asked})
