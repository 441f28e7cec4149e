"""Users' own models: sealed keys, guarded URLs, one user's only."""

from __future__ import annotations

import ipaddress
import os
import stat
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from services.chassis.errors import InvalidRequest
from services.chassis.settings import Secret
from services.chassis.telemetry import no_telemetry
from services.orchestrator.adapters.sql.database import Database
from services.orchestrator.adapters.sql.own_models import SqlOwnModels
from services.orchestrator.models.compose import Models, Ownership, build_models
from services.orchestrator.models.errors import ModelNotFound, ModelUrlForbidden, UrlForbidden
from services.orchestrator.models.own.addresses import UrlGuard
from services.orchestrator.models.own.models import OwnModels
from services.orchestrator.models.own.ports import Definition, NameTaken
from services.orchestrator.models.own.vault import SealBroken, Vault, vault_at, vault_of
from services.orchestrator.models.retry import RetryPolicy
from tests.support.clock import FakeClock, SequentialIds
from tests.support.platform import principal
from tests.support.upstream import Upstream
from tests.support.upstream_composed import answer
from tests.support.upstream_models import ask
from tests.support.upstream_script import say

ANN, BOB, EVE = principal("ann"), principal("bob"), principal("ann", "rival")
LOOPBACK = ipaddress.ip_network("127.0.0.0/8")
MINE = Definition(name="mine", base_url="https://models.example.org/v1", api_key=Secret("sk-ann"))


class Names:
    """A name server whose answers a test changes."""

    def __init__(self, *addresses: str) -> None:
        self.addresses: Sequence[str] = addresses

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        if not self.addresses:
            raise OSError("no such host")
        return self.addresses


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = await Database.open(f"sqlite:///{tmp_path / 'own.sqlite3'}", FakeClock())
    yield opened
    await opened.close()


def layer(database: Database, tmp_path: Path, guard: UrlGuard | None = None, vault: Vault | None = None) -> Models:
    (tmp_path / "proctor.toml").write_text('[models.house]\nbase_url = "http://127.0.0.1:1/v1"\n', encoding="utf-8")
    ownership = Ownership(
        store=SqlOwnModels(database.engine),
        vault=vault or vault_of(Secret("v" * 32)),
        ids=SequentialIds(),
        guard=guard or UrlGuard(lookup=Names("93.184.216.34")),
    )
    return build_models(
        config=tmp_path / "proctor.toml",
        environ={},
        telemetry=no_telemetry(),
        clock=FakeClock(),
        retry=RetryPolicy(retries=0),
        ownership=ownership,
    )


@pytest.fixture
async def models(database: Database, tmp_path: Path) -> AsyncIterator[Models]:
    made = layer(database, tmp_path)
    yield made
    await made.close()


def own(models: Models) -> OwnModels:
    assert models.own is not None
    return models.own


async def test_a_kept_model_is_listed_for_its_user_and_for_nobody_else(models: Models) -> None:
    row = await own(models).create(ANN, MINE)
    assert [info.model_id for info in models.catalogue.list_for(ANN)] == ["house", "reader", row.model_id]
    assert models.catalogue.get_for(row.model_id, ANN).owner == "ann"
    for other in (BOB, EVE):
        assert row.model_id not in [info.model_id for info in models.catalogue.list_for(other)]
        with pytest.raises(ModelNotFound):
            models.catalogue.get_for(row.model_id, other)
        with pytest.raises(ModelNotFound):
            await own(models).delete(other, row.model_id)
        with pytest.raises(ModelNotFound):
            await own(models).update(other, row.model_id, MINE)


async def test_the_key_is_nowhere_in_the_database_file(database: Database, models: Models, tmp_path: Path) -> None:
    await own(models).create(ANN, MINE)
    await database.engine.dispose()
    for file in tmp_path.glob("own.sqlite3*"):
        assert b"sk-ann" not in file.read_bytes()


async def test_models_survive_a_restart_and_do_not_open_with_another_secret(
    database: Database, models: Models, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    row = await own(models).create(ANN, MINE)
    again, other = layer(database, tmp_path), layer(database, tmp_path, vault=vault_of(Secret("w" * 32)))
    for one in (again, other):
        await own(one).refresh()
    settings = own(again).settings(row.model_id)
    assert settings is not None
    assert str(settings.api_key) == "sk-ann"
    assert own(other).settings(row.model_id) is None
    assert "cannot be read" in caplog.text


async def test_an_update_keeps_the_key_only_with_its_url(models: Models) -> None:
    row = await own(models).create(ANN, MINE)
    keyless = replace(MINE, api_key=Secret(""), window=8000)
    await own(models).update(ANN, row.model_id, keyless)
    settings = own(models).settings(row.model_id)
    assert settings is not None
    assert (settings.window, str(settings.api_key)) == (8000, "sk-ann")
    with pytest.raises(InvalidRequest, match="give the key again"):
        await own(models).update(ANN, row.model_id, replace(keyless, base_url="https://thief.example.org/v1"))


async def test_a_deleted_model_is_gone(models: Models) -> None:
    row = await own(models).create(ANN, MINE)
    await own(models).delete(ANN, row.model_id)
    assert models.catalogue.settings(row.model_id) is None
    with pytest.raises(ModelNotFound):
        await own(models).delete(ANN, row.model_id)


async def test_names_are_taken_once_per_user_and_never_the_operator_s(models: Models) -> None:
    await own(models).create(ANN, MINE)
    await own(models).create(BOB, MINE)
    with pytest.raises(NameTaken):
        await own(models).create(ANN, MINE)
    with pytest.raises(NameTaken):
        await own(models).create(ANN, replace(MINE, name="house"))


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/v1",
        "http://10.1.2.3/v1",
        "http://169.254.169.254/latest/meta-data",
        "http://[::1]/v1",
        "http://[::ffff:10.0.0.1]/v1",
        "http://[64:ff9b::7f00:1]/v1",
        "http://[2002:7f00:1::]/v1",
        "http://0/v1",
        "http://2130706433/v1",
        "http://0x7f.1/v1",
        "http://100.64.0.1/v1",
        "ftp://models.example.org/v1",
        "https://user:pass@models.example.org/v1",
        "https://models.example.org:99999/v1",
        "https:///v1",
    ],
)
async def test_urls_to_private_places_are_refused_when_saved(url: str) -> None:
    with pytest.raises(UrlForbidden):
        await UrlGuard().check(url)


async def test_one_private_address_among_public_ones_is_enough_to_refuse() -> None:
    with pytest.raises(UrlForbidden, match="private network"):
        await UrlGuard(lookup=Names("93.184.216.34", "10.0.0.1")).check("https://models.example.org/v1")


async def test_a_host_that_turns_private_after_the_save_is_refused_when_connected_to(
    database: Database, tmp_path: Path
) -> None:
    names = Names("93.184.216.34")
    models = layer(database, tmp_path, UrlGuard(lookup=names))
    async with Upstream(say("never")) as upstream:
        # The name server lied at the save; the connection goes to where the host really leads.
        row = await own(models).create(ANN, replace(MINE, base_url=upstream.base_url))
        with pytest.raises(ModelUrlForbidden):
            await answer(models, ask(model=row.model_id, tenant="local", user="ann"))
        assert upstream.requests == []
    await models.close()


async def test_a_run_of_the_tenant_uses_the_model_and_another_tenant_cannot(database: Database, tmp_path: Path) -> None:
    models = layer(database, tmp_path, UrlGuard(allowed=(LOOPBACK,)))
    async with Upstream(say("From mine")) as upstream:
        row = await own(models).create(ANN, replace(MINE, base_url=upstream.base_url))
        heard = await answer(models, ask(model=row.model_id, tenant="local", user="bob"))
        assert upstream.requests[0].headers["authorization"] == "Bearer sk-ann"
        with pytest.raises(ModelNotFound):
            await answer(models, ask(model=row.model_id, tenant="rival", user="ann"))
    assert heard.reply.text == "From mine"
    await models.close()


def test_what_is_sealed_for_one_row_does_not_open_in_another() -> None:
    vault = vault_of(Secret("v" * 32))
    sealed = vault.seal("key", "row-1")
    assert vault.open(sealed, "row-1") == "key"
    for damaged, context in (
        (sealed, "row-2"),
        (sealed[:-1] + bytes([sealed[-1] ^ 1]), "row-1"),
        (b"\x02" + sealed[1:], "row-1"),
    ):
        with pytest.raises(SealBroken):
            vault.open(damaged, context)


def test_the_vault_s_file_is_made_once_and_readable_by_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "models.key"
    sealed = vault_at(path).seal("key", "row")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert vault_at(path).open(sealed, "row") == "key"


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(ValueError, match="32 characters"):
        vault_of(Secret("short"))


def test_replicas_that_start_together_make_one_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "models.key"
    made: list[Vault] = []
    link = os.link

    def overtaken(source: str, target: Path) -> None:
        # Another replica starts at the moment when this one's secret is written and has no name yet.
        monkeypatch.setattr(os, "link", link)
        assert not path.exists()
        made.append(vault_at(path))
        link(source, target)

    monkeypatch.setattr(os, "link", overtaken)
    vault = vault_at(path)
    assert made[0].open(vault.seal("key", "row"), "row") == "key"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["models.key"]
