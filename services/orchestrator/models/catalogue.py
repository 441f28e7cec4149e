"""Which models there are: the operator's, read again when their file changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path

from services.orchestrator.models.catalogue_file import READER_SETTINGS, ModelsInvalid, read_models
from services.orchestrator.models.errors import ModelNotFound
from services.orchestrator.models.model_settings import Api, ModelSettings
from services.orchestrator.models.ports import ModelInfo, Purpose

log = logging.getLogger(__name__)

RELOAD_SECONDS = 2.0


class FileCatalogue:
    """The models of a file and the environment. A file that turns wrong keeps the last good models and says so."""

    def __init__(self, path: Path, environ: Mapping[str, str]) -> None:
        """Read the models. Raises ModelsInvalid."""
        self._path = path
        self._environ = environ
        self._seen = _stamp(path)
        self._models = _by_id(read_models(path, environ))

    def settings(self, model_id: str) -> ModelSettings | None:
        """Return how to speak to the model, or None."""
        return self._models.get(model_id)

    def get(self, model_id: str) -> ModelInfo:
        """Return the model, or raise ModelNotFound; an empty id is the default for answers."""
        if not model_id:
            return self.default(Purpose.ANSWER)
        found = self._models.get(model_id)
        if found is None:
            raise ModelNotFound(model_id)
        return found.info

    def default(self, purpose: Purpose) -> ModelInfo:
        """Return the model with that role; else the one for answers; else the first language model; else the reader."""
        for wanted in (purpose, Purpose.ANSWER):
            for model in self._models.values():
                if wanted in model.roles:
                    return model.info
        for model in self._models.values():
            if model.api is not Api.READER:
                return model.info
        return next(iter(self._models.values()), READER_SETTINGS).info

    @property
    def has_endpoints(self) -> bool:
        """Whether a model is served elsewhere, unlike the reader."""
        return any(model.api is not Api.READER for model in self._models.values())

    def list(self) -> tuple[ModelInfo, ...]:
        """Return all models, in the order of the file."""
        return tuple(model.info for model in self._models.values())

    def reload(self) -> bool:
        """Read the file again if it has changed; tell whether the models are new now."""
        stamp = _stamp(self._path)
        if stamp == self._seen:
            return False
        self._seen = stamp
        try:
            models = read_models(self._path, self._environ)
        except (ModelsInvalid, OSError) as error:
            log.error("the models in %s are wrong, the last good ones stay: %s", self._path.name, error)  # noqa: TRY400 - the message is the whole story
            return False
        self._models = _by_id(models)
        log.info("read %d models from %s", len(models), self._path.name)
        return True

    async def watch(self, interval: float = RELOAD_SECONDS) -> None:
        """Reload for ever, until cancelled."""
        while True:
            await asyncio.sleep(interval)
            await asyncio.to_thread(self.reload)


def _by_id(models: tuple[ModelSettings, ...]) -> dict[str, ModelSettings]:
    return {model.model_id: model for model in models}


def _stamp(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return (0, 0)
    return (status.st_mtime_ns, status.st_size)
