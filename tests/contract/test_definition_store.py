"""The store of kept agents and prompts, on SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest

from services.orchestrator.adapters.sql.database import Database
from services.orchestrator.adapters.sql.definitions import AGENTS, PROMPTS, SqlDefinitions
from services.orchestrator.agents.ports import Conflict, NameTaken
from services.orchestrator.domain.agent import (
    Agent,
    AgentType,
    Exposure,
    Prompt,
    SourceBinding,
    ToolBinding,
    ToolPolicy,
)
from services.orchestrator.domain.messages import Budget, OutputFormat, Sampling
from tests.support.clock import FakeClock

NOW = FakeClock().now()


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    opened = await Database.open(database_url, FakeClock())
    yield opened
    await opened.close()


@pytest.fixture
def agents(database: Database) -> SqlDefinitions[Agent]:
    return SqlDefinitions(database.engine, AGENTS)


@pytest.fixture
def prompts(database: Database) -> SqlDefinitions[Prompt]:
    return SqlDefinitions(database.engine, PROMPTS)


def agent(agent_id: str = "agent-1", name: str = "财务", version: int = 1, owner: str = "ann") -> Agent:
    return Agent(
        agent_id=agent_id,
        name=name,
        type=AgentType.CLASSIC,
        description="Answers from the ledger.",
        model="m1",
        prompt="You are {{ agent }}.",
        sources=(SourceBinding(source="ledger", exposure=Exposure.AGENTIC),),
        tools=(
            ToolBinding(
                tool="run_code", policy=ToolPolicy.QUORUM, quorum=2, group="cfo", four_eyes=True, when="args.x > 1"
            ),
        ),
        budget=Budget(rounds=3, wall_time=timedelta(seconds=90)),
        output=OutputFormat(json_schema=b'{"type":"object"}'),
        sampling=Sampling(temperature=0.5),
        version=version,
        read_only=False,
        router_json=b'{"labels":[]}',
        language="zh-CN",
        owner=owner,
        shared=True,
        updated_at=NOW,
    )


async def test_an_agent_comes_back_as_it_was_by_id_and_by_name(agents: SqlDefinitions[Agent]) -> None:
    await agents.add("acme", agent())
    assert await agents.get("acme", "agent-1") == await agents.get("acme", "财务") == agent()
    assert await agents.get("other", "agent-1") is None
    assert await agents.version("other", "agent-1", 1) is None
    assert not await agents.versions("other", "agent-1", limit=9, before=0)
    assert not await agents.list("other")


async def test_every_version_is_kept_and_the_newest_is_the_one(agents: SqlDefinitions[Agent]) -> None:
    await agents.add("acme", agent())
    for version in (2, 3):
        await agents.replace("acme", agent(name="ledger", version=version), version - 1)
    assert await agents.get("acme", "ledger") == agent(name="ledger", version=3)
    assert await agents.get("acme", "财务") is None
    assert [a.version for a in await agents.versions("acme", "agent-1", limit=2, before=0)] == [3, 2]
    assert [a.name for a in await agents.versions("acme", "agent-1", limit=2, before=2)] == ["财务"]
    assert await agents.version("acme", "agent-1", 1) == agent()


async def test_who_changes_an_older_version_is_refused(agents: SqlDefinitions[Agent]) -> None:
    await agents.add("acme", agent())
    await agents.replace("acme", agent(version=2), 1)
    with pytest.raises(Conflict, match="version 2 now and version 1"):
        await agents.replace("acme", agent(version=2), 1)
    with pytest.raises(Conflict):
        await agents.replace("other", agent(version=3), 2)
    assert len(await agents.versions("acme", "agent-1", limit=9, before=0)) == 2


async def test_a_name_is_unique_in_its_tenant_and_kind(
    agents: SqlDefinitions[Agent], prompts: SqlDefinitions[Prompt]
) -> None:
    await agents.add("acme", agent())
    await agents.add("other", agent("agent-2"))
    await agents.add("acme", agent("agent-3", name="ledger"))
    with pytest.raises(NameTaken, match="财务"):
        await agents.add("acme", agent("agent-4", owner="bob"))
    with pytest.raises(NameTaken):
        await agents.replace("acme", agent("agent-3", version=2), 1)
    assert [a.name for a in await agents.list("acme")] == ["ledger", "财务"]
    prompt = Prompt(prompt_id="prompt-1", name="财务", template="Hi.", read_only=False, owner="ann", updated_at=NOW)
    await prompts.add("acme", prompt)
    assert await prompts.get("acme", "财务") == prompt


async def test_what_is_removed_is_gone_with_its_versions(agents: SqlDefinitions[Agent]) -> None:
    await agents.add("acme", agent())
    await agents.replace("acme", replace(agent(version=2), name="x"), 1)
    assert not await agents.remove("other", "agent-1")
    assert await agents.remove("acme", "agent-1")
    assert not await agents.remove("acme", "agent-1")
    assert await agents.get("acme", "x") is None
    assert not await agents.versions("acme", "agent-1", limit=9, before=0)
