"""A copy of a served suite is a suite: what was answered, what waits and what was read are there and go on."""

from __future__ import annotations

import asyncio
import json
import stat
from pathlib import Path
from typing import Any

import pytest

from services.chassis.clock import SystemClock
from services.cli.backup import BackupRefused, back_up
from services.orchestrator.adapters.sql.database import Database
from services.orchestrator.domain.events import Notice
from tests.support.journal_kit import completed, decoded, new_run, replica
from tests.support.postgres import Cluster, run
from tests.support.suite import GRPC_SERVICES, short_folder, suite
from tests.support.suite_steps import ask, ingest_handbook, of, watch
from tests.support.upstream import Upstream
from tests.support.upstream_script import call, say

ASKING = {"name": "asking", "tools": [{"tool": "current_time", "policy": "TOOL_POLICY_ASK"}, {"tool": "search"}]}
SERVICES = ("approval", "retrieval", "orchestrator")


def over(data: Path) -> dict[str, Any]:
    """Return settings by which all services share one data folder, as under `proctor up`."""
    return {f"PROCTOR_{name.upper()}_DATA_DIR": str(data) for name in (*GRPC_SERVICES, "gateway")}


async def test_a_backup_made_while_serving_goes_on_where_it_was_made() -> None:
    with short_folder() as folder:
        async with Upstream() as upstream:
            run_id, approval_id = await _serve_and_copy(folder, upstream)
            await _serve_the_copy(folder, upstream, run_id, approval_id)


async def _serve_and_copy(folder: Path, upstream: Upstream) -> tuple[str, str]:
    async with suite(model=upstream.base_url, services=SERVICES, **over(folder / "data")) as first:
        await ingest_handbook(first)
        (await first.http.post("/v1/keys", json={"name": "kept", "scopes": ["runs"]})).raise_for_status()
        upstream.script(call("current_time", json.dumps({"reason": "r"})), say("It is late."))
        events = await ask(first, "What time is it?", inline_agent=ASKING, hold=0)
        assert events[-1]["kind"] == "run_paused"
        await asyncio.to_thread(back_up, folder / "data", folder / "copy")
        # What happens afterwards is not in the copy.
        approval_id = of(events, "approval_requested")[0]["approval_id"]
        (await first.http.post(f"/v1/approvals/{approval_id}/decision", json={"decision": "deny"})).raise_for_status()
        rest = await watch(first, events[0]["run_id"])
        assert of(rest, "run_completed")
        return events[0]["run_id"], approval_id


async def _serve_the_copy(folder: Path, upstream: Upstream, run_id: str, approval_id: str) -> None:
    upstream.reset()
    async with suite(
        model=upstream.base_url, services=SERVICES, PROCTOR_ORCHESTRATOR_PARKED_EVERY="0.2", **over(folder / "copy")
    ) as second:
        upstream.script(say("It is late, says the copy."))
        decided = await second.http.post(f"/v1/approvals/{approval_id}/decision", json={"decision": "approve"})
        assert decided.status_code == 200, decided.text
        events = await watch(second, run_id)
        assert of(events, "run_completed")[0]["text"] == "It is late, says the copy."
        assert [key["name"] for key in (await second.http.get("/v1/keys")).json()["keys"]] == ["kept"]
        upstream.script(call("search", json.dumps({"query": "mileage rate for cars", "reason": "r"})), say("[1]"))
        found = await ask(second, "What is the mileage rate for cars?")
        assert any("0.38" in item["evidence"]["text"] for item in of(found, "evidence_added"))


def test_a_backup_is_private_and_overwrites_nothing(tmp_path: Path) -> None:
    with pytest.raises(BackupRefused, match="no database"):
        back_up(tmp_path, tmp_path / "copy")
    (tmp_path / "gateway.sqlite3").touch()
    (tmp_path / "models.key").write_text("secret")
    (tmp_path / "models.key").chmod(0o600)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "gateway.log").touch()
    target = tmp_path.parent / f"{tmp_path.name}-copy"
    back_up(tmp_path, target)
    assert {path.name for path in target.iterdir()} == {"gateway.sqlite3", "models.key"}
    assert stat.S_IMODE(target.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in target.iterdir()} == {0o600}
    with pytest.raises(BackupRefused, match="there already"):
        back_up(tmp_path, target)


async def test_a_dump_of_postgresql_is_taken_up_by_another_server(
    postgres: Cluster, postgres_url: str, tmp_path: Path
) -> None:
    dump = postgres.folder / f"{tmp_path.name}.dump"
    where = ("-h", str(postgres.folder), "-p", str(postgres.port), "-U", "postgres")
    database = await Database.open(postgres_url, SystemClock())
    async with replica(database, lease=0.5) as here:
        admitted = await here.journals.admit(new_run())
        journal = admitted.journal
        assert journal is not None
        await journal.fact(Notice(code="n", text="before"))
        run(postgres.programs / "pg_dump", *where, "-Fc", "-f", str(dump), postgres_url.rsplit("/", 1)[1])
        await journal.finish(completed())
    await database.close()
    name = postgres.create_database()
    try:
        run(postgres.programs / "pg_restore", *where, "-d", name, str(dump))
        await _take_up(postgres_url.rsplit("/", 1)[0] + f"/{name}", admitted.run.run_id)
    finally:
        postgres.drop_database(name)


async def _take_up(url: str, run_id: str) -> None:
    database = await Database.open(url, SystemClock())
    async with replica(database, "two") as there:
        # Its owner's lease, which is in the dump, ends first.
        async with asyncio.timeout(10):
            while (journal := await there.journals.claim(run_id)) is None:
                await asyncio.sleep(0.05)
        await journal.finish(completed("after"))
        events: list[Any] = decoded(await there.read(run_id))
    await database.close()
    assert [event.text for event in events] == ["before", "after"]
