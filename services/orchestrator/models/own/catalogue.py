"""One catalogue over the operator's models and the users' own."""

from __future__ import annotations

from services.chassis.identity import Principal
from services.orchestrator.models.catalogue import FileCatalogue
from services.orchestrator.models.errors import ModelNotFound
from services.orchestrator.models.model_settings import ModelSettings
from services.orchestrator.models.own.models import OwnModels
from services.orchestrator.models.ports import ModelInfo, Purpose


class JoinedCatalogue:
    """The operator's models first; a user's own is found by its id only."""

    def __init__(self, operators: FileCatalogue, own: OwnModels | None) -> None:
        self._operators = operators
        self._own = own

    def settings(self, model_id: str, tenant: str | None = None) -> ModelSettings | None:
        """Return how to speak to a model; another tenant's is none."""
        found = self._operators.settings(model_id)
        if found is None and self._own is not None:
            return self._own.settings(model_id, tenant)
        return found

    def get(self, model_id: str) -> ModelInfo:
        """Return the model, or raise ModelNotFound; an empty id is the default for answers."""
        if model_id and (found := self.settings(model_id)) is not None:
            return found.info
        return self._operators.get(model_id)

    def get_for(self, model_id: str, principal: Principal) -> ModelInfo:
        """Return a model that `principal` may name: the operator's or their own. Raises ModelNotFound."""
        if model_id and self._operators.settings(model_id) is None and self._own is not None:
            self._own.get(principal, model_id)
        return self.get(model_id)

    def default(self, purpose: Purpose) -> ModelInfo:
        """Return the operator's default for a purpose."""
        return self._operators.default(purpose)

    def list(self) -> tuple[ModelInfo, ...]:
        """Return the operator's models."""
        return self._operators.list()

    def list_for(self, principal: Principal) -> tuple[ModelInfo, ...]:
        """Return the operator's models, then the principal's own."""
        if self._own is None:
            return self.list()
        own = (self.settings(row.model_id) for row in self._own.list(principal))
        return (*self.list(), *(settings.info for settings in own if settings is not None))

    def require(self, model_id: str, tenant: str) -> ModelSettings:
        """Return how to speak to a model on behalf of `tenant`, or raise ModelNotFound."""
        found = self.settings(model_id, tenant)
        if found is None:
            raise ModelNotFound(model_id)
        return found
