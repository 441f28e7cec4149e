"""The prebuilt agent of LangChain on LangGraph, with one tool."""

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI


def current_weather(city: str = "Oslo") -> str:
    """Say how the weather is in a city."""
    return f"It snows in {city}."


agent = create_agent(ChatOpenAI(model="scripted", streaming=True), [current_weather])
