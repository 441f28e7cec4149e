"""Orders: fusing ranked lists, merging searches, collapsing children to their parents, spreading over subjects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from services.retrieval.domain.search import Candidate, Located, Match, Stage
from services.retrieval.tokens import bigrams

# Reciprocal rank fusion: 60 is the constant of Cormack, Clarke and Büttcher (SIGIR 2009).
RRF_K = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """A candidate with its passage and calibrated score; `order` ranks within equal meaning of score."""

    candidate: Candidate
    located: Located
    score: float | None
    stage: Stage

    @property
    def order(self) -> tuple[float, float]:
        """What sorts hits: the score, then the fused rank. A hit without a score stands between floor and enough."""
        return (0.4 if self.score is None else self.score, self.candidate.fused)


def fuse(lexical: Sequence[Match], nearest: Sequence[Match], *, vector_weight: float) -> list[Candidate]:
    """Return every chunk of both lists by its summed reciprocal ranks, best first."""
    found: dict[str, Candidate] = {}
    for rank, match in enumerate(lexical, start=1):
        found[match.chunk_id] = Candidate(
            chunk_id=match.chunk_id,
            passage_id=match.passage_id,
            index=match.index,
            lexical_rank=rank,
            fused=(1 - vector_weight) / (RRF_K + rank),
        )
    for rank, match in enumerate(nearest, start=1):
        known = found.get(match.chunk_id) or Candidate(
            chunk_id=match.chunk_id, passage_id=match.passage_id, index=match.index
        )
        found[match.chunk_id] = replace(
            known, vector_rank=rank, cosine=match.score, fused=known.fused + vector_weight / (RRF_K + rank)
        )
    return sorted(found.values(), key=lambda one: -one.fused)


def merge(searches: Iterable[Sequence[Scored]]) -> list[Scored]:
    """Return the hits of several searches by chunk, the higher score kept, best first."""
    best: dict[str, Scored] = {}
    for search in searches:
        for hit in search:
            known = best.get(hit.candidate.chunk_id)
            if known is None or hit.order > known.order:
                best[hit.candidate.chunk_id] = hit
    return sorted(best.values(), key=lambda hit: hit.order, reverse=True)


def collapse(hits: Iterable[Scored]) -> list[Scored]:
    """Return the best child of each parent, in the order given."""
    best: dict[str, Scored] = {}
    for hit in hits:
        best.setdefault(hit.located.passage.id, hit)
    return list(best.values())


def passages_over_summaries(hits: Sequence[Scored]) -> list[Scored]:
    """Return the hits, a summary giving its place to the best passage of its document: it would say the same again.

    A summary stays where no passage of its document was found.
    """
    best: dict[str, Scored] = {}
    for hit in hits:
        if not hit.located.passage.is_summary:
            best.setdefault(hit.located.passage.document_id, hit)
    return collapse(
        best.get(hit.located.passage.document_id, hit) if hit.located.passage.is_summary else hit for hit in hits
    )


def with_reserved(chosen: Sequence[Scored], reserved: Sequence[Scored], limit: int) -> list[Scored]:
    """Return `limit` of the chosen hits, the last of them giving way to reserved ones that are not among them."""
    shown = {hit.located.passage.id for hit in chosen}
    missing = [hit for hit in collapse(reserved) if hit.located.passage.id not in shown][:limit]
    return [*chosen[: limit - len(missing)], *missing]


def diversify(hits: Sequence[Scored], limit: int, weight: float) -> list[Scored]:
    """Return `limit` hits by maximal marginal relevance (Carbonell and Goldstein, 1998) over character bigrams.

    `weight` 0 leaves the order as it is; 1 looks only at what is new.
    """
    if weight <= 0:
        return list(hits[:limit])
    shapes: Mapping[int, set[str]] = {at: bigrams(_child(hit)) for at, hit in enumerate(hits)}
    chosen: list[int] = []
    left = set(shapes)
    while left and len(chosen) < limit:
        gain = {
            at: (1 - weight) * hits[at].order[0]
            - weight * max((_alike(shapes[at], shapes[other]) for other in chosen), default=0.0)
            for at in left
        }
        chosen.append(max(sorted(left), key=gain.__getitem__))
        left.remove(chosen[-1])
    return [hits[at] for at in chosen]


def _child(hit: Scored) -> str:
    span = hit.located.passage.spans[hit.candidate.index]
    return hit.located.passage.text[span.start : span.end]


def _alike(one: set[str], other: set[str]) -> float:
    return len(one & other) / max(len(one | other), 1)
