"""A tool set larger than the model's limit is narrowed by relevance, never cut by order."""

from __future__ import annotations

from services.orchestrator.domain.messages import ToolSpec
from services.orchestrator.narrowing import narrow


def tool(name: str, description: str = "") -> ToolSpec:
    return ToolSpec(name=name, description=description, parameters_json=b"{}")


MANY = [*(tool(f"list_things_{i}", "List things of a kind.") for i in range(200)), tool("getWeather", "Forecast")]


def test_the_relevant_tool_is_kept_wherever_it_stands() -> None:
    kept, left_out = narrow(MANY, "What is the weather in Oslo?", 10)
    assert "getWeather" in [t.name for t in kept]
    assert (len(kept), len(left_out)) == (10, 191)


def test_order_is_kept_and_few_tools_are_left_alone() -> None:
    kept, left_out = narrow(MANY[:5], "anything", 10)
    assert (list(kept), left_out) == (MANY[:5], ())
    kept, _ = narrow(MANY, "weather", 3)
    assert [t.name for t in kept] == sorted((t.name for t in kept), key=[t.name for t in MANY].index)


def test_named_tools_always_stay() -> None:
    kept, _ = narrow(MANY, "weather", 2, always={"list_things_150"})
    assert [t.name for t in kept] == ["list_things_150", "getWeather"]


def test_chinese_questions_find_chinese_descriptions() -> None:
    tools = [*MANY, tool("t1", "查询天气预报"), tool("t2", "发送邮件")]
    kept, _ = narrow(tools, "今天天气怎么样？", 1)
    assert [t.name for t in kept] == ["t1"]
