"""Bring your own model: made, changed, listed and used by one user, never by another tenant."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

from services.chassis.clock import Clock, Ids
from services.chassis.errors import FieldViolation, InvalidRequest, Overloaded
from services.chassis.identity import Principal
from services.chassis.settings import Secret
from services.orchestrator.models.catalogue import FileCatalogue
from services.orchestrator.models.errors import ModelNotFound
from services.orchestrator.models.model_settings import CAPABILITIES, Api, ModelSettings
from services.orchestrator.models.own.addresses import UrlGuard
from services.orchestrator.models.own.ports import Definition, NameTaken, OwnModelStore, StoredModel
from services.orchestrator.models.own.vault import SealBroken, Vault

log = logging.getLogger(__name__)

PREFIX = "own-"
MAX_PER_USER = 100
REFRESH_SECONDS = 5.0


class OwnModels:
    """The models of all users. They are held in memory too, since a run names its model at every step.

    A change shows at once on the replica that made it and within REFRESH_SECONDS on the others.
    """

    def __init__(
        self, store: OwnModelStore, vault: Vault, guard: UrlGuard, operators: FileCatalogue, clock: Clock, ids: Ids
    ) -> None:
        self._store = store
        self._vault = vault
        self._guard = guard
        self._operators = operators
        self._clock = clock
        self._ids = ids
        self._rows: dict[str, StoredModel] = {}

    async def create(self, principal: Principal, definition: Definition) -> StoredModel:
        """Keep a new model. Raises InvalidRequest, UrlForbidden, NameTaken, Overloaded."""
        await self._check(definition)
        if len(self.list(principal)) >= MAX_PER_USER:
            raise Overloaded(f"a user may keep {MAX_PER_USER} models; delete one first")
        now = self._clock.now()
        row = StoredModel(
            model_id=PREFIX + self._ids.new(),
            tenant=principal.tenant,
            user=principal.user,
            definition=replace(definition, api_key=Secret("")),
            sealed_key=b"",
            created_at=now,
            updated_at=now,
        )
        row = replace(row, sealed_key=self._vault.seal(definition.api_key, row.context))
        await self._store.add(row)
        self._rows[row.model_id] = row
        return row

    async def update(self, principal: Principal, model_id: str, definition: Definition) -> StoredModel:
        """Put another definition in place. Raises ModelNotFound, InvalidRequest, UrlForbidden, NameTaken.

        A stored key stays only with its base URL: whoever changes that gives the key again.
        """
        old = self.get(principal, model_id)
        await self._check(definition)
        if not definition.api_key and definition.base_url != old.definition.base_url:
            raise _invalid("api_key", "give the key again when the base URL changes")
        key = definition.api_key or Secret(self._vault.open(old.sealed_key, old.context))
        kept = replace(definition, api_key=Secret(""))
        row = replace(old, definition=kept, updated_at=self._clock.now())
        row = replace(row, sealed_key=self._vault.seal(key, row.context))
        await self._store.replace(row)
        self._rows[model_id] = row
        return row

    async def delete(self, principal: Principal, model_id: str) -> None:
        """Forget a model and its key. Raises ModelNotFound."""
        if not await self._store.remove(principal.tenant, principal.user, model_id):
            raise ModelNotFound(model_id)
        self._rows.pop(model_id, None)

    def get(self, principal: Principal, model_id: str) -> StoredModel:
        """Return a model of this user, or raise ModelNotFound."""
        row = self._rows.get(model_id)
        if row is None or (row.tenant, row.user) != (principal.tenant, principal.user):
            raise ModelNotFound(model_id)
        return row

    def list(self, principal: Principal) -> tuple[StoredModel, ...]:
        """Return this user's models, oldest first."""
        mine = (row for row in self._rows.values() if (row.tenant, row.user) == (principal.tenant, principal.user))
        return tuple(sorted(mine, key=lambda row: (row.created_at, row.model_id)))

    def settings(self, model_id: str, tenant: str | None = None) -> ModelSettings | None:
        """Return how to speak to a model, None when there is none or it is another tenant's.

        Within a tenant anybody's run may use it: an agent that is shared brings its owner's model.
        """
        row = self._rows.get(model_id)
        if row is None or tenant not in (None, row.tenant):
            return None
        try:
            return _settings(row, Secret(self._vault.open(row.sealed_key, row.context)))
        except SealBroken as error:
            log.error("the key of model %s cannot be read: %s", model_id, error)  # noqa: TRY400 - the message is all
            return None

    def has_key(self, row: StoredModel) -> bool:
        """Whether a key is stored with a model, and can be read."""
        try:
            return bool(self._vault.open(row.sealed_key, row.context))
        except SealBroken:
            return False

    async def refresh(self) -> None:
        """Read every row anew."""
        self._rows = {row.model_id: row for row in await self._store.all()}

    async def watch(self, interval: float = REFRESH_SECONDS) -> None:
        """Refresh for ever, until cancelled; a database that does not answer is asked again."""
        while True:
            await asyncio.sleep(interval)
            try:
                await self.refresh()
            except Exception as error:  # noqa: BLE001 - whatever it is, the last known rows serve on
                log.warning("users' models could not be read again: %s", error)

    async def _check(self, definition: Definition) -> None:
        if not definition.name.strip():
            raise _invalid("name", "give the model a name")
        if definition.api is Api.READER:
            raise _invalid("api", "a model of one's own speaks chat or responses")
        if unknown := sorted(definition.capabilities - CAPABILITIES):
            raise _invalid("capabilities", f"{unknown} are none; they are {sorted(CAPABILITIES)}")
        if definition.window < 0 or definition.output_limit < 0:
            raise _invalid("window", "window and output limit are numbers of tokens, 0 when unknown")
        if self._operators.settings(definition.name) is not None:
            raise NameTaken(definition.name)
        await self._guard.check(definition.base_url)


def _settings(row: StoredModel, key: Secret) -> ModelSettings:
    definition = row.definition
    return ModelSettings(
        model_id=row.model_id,
        upstream_name=definition.upstream_name or definition.name,
        api=definition.api,
        base_url=definition.base_url,
        api_key=key,
        window=definition.window,
        output_limit=definition.output_limit,
        capabilities=definition.capabilities,
        description=definition.description or definition.name,
        owner=row.user,
    )


def _invalid(field: str, remedy: str) -> InvalidRequest:
    return InvalidRequest(f"{field}: {remedy}", violations=(FieldViolation(field=field, description=remedy),))
