"""Asking a model something for the run's own sake: nothing of it is shown, its clock and tokens are recorded."""

from __future__ import annotations

from services.chassis.clock import Ids
from services.orchestrator.context.compaction import ask
from services.orchestrator.domain.messages import Message, OutputFormat, Sampling
from services.orchestrator.leg import Leg
from services.orchestrator.models.errors import ModelError
from services.orchestrator.models.ports import Catalogue, ChatModel, ModelInfo, ModelReply, ModelRequest, Purpose
from services.orchestrator.speak import call_failed, call_finished


class Consultant:
    """Puts questions of a strategy to the model that has the role for them, else to the run's own."""

    def __init__(self, model: ChatModel, catalogue: Catalogue, ids: Ids) -> None:
        self._model = model
        self._catalogue = catalogue
        self._ids = ids

    def model_for(self, leg: Leg, purpose: Purpose) -> ModelInfo:
        """Return the model that is asked: the one with the role, else the run's own."""
        model = self._catalogue.default(purpose)
        return self._catalogue.get(leg.spec.model) if model == self._catalogue.default(Purpose.ANSWER) else model

    async def ask(
        self,
        leg: Leg,
        purpose: Purpose,
        messages: tuple[Message, ...],
        *,
        output: OutputFormat,
        sampling: Sampling | None = None,
    ) -> ModelReply:
        """Return the reply; raise ModelError, its clock recorded, when there is none."""
        spec = leg.spec
        model = self.model_for(leg, purpose)
        request = ModelRequest(
            call_id=self._ids.new(),
            model=model.model_id,
            purpose=purpose,
            messages=messages,
            tool_choice="none",
            sampling=sampling or Sampling(),
            output=output,
            tenant=spec.principal.tenant,
            user=spec.principal.user,
        )
        try:
            reply = await ask(self._model, request)
        except ModelError as error:
            if error.timing is not None:
                leg.post(call_failed(request, model.model_id, error))
            raise
        leg.spend(usage=reply.usage)
        leg.post(call_finished(request, reply))
        return reply
