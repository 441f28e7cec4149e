"""Where the rows of a table of the embedded index belong, and the conditions that keep a search in its scope."""

from __future__ import annotations

import pyarrow as pa

from services.retrieval.adapters.lance_rows import quote, quoted
from services.retrieval.domain.search import Scope

# No row can match.
NOWHERE = "false"


class Places:
    """Which tenants and sources have rows in a table, or had: most conditions then need not be looked up at all.

    At 100,000 rows a condition on the tenant and one on the source cost more than the search itself.
    """

    def __init__(self, rows: pa.Table) -> None:
        pairs = rows.group_by(["tenant", "source_id"]).aggregate([])
        self._known = set(zip(pairs["tenant"].to_pylist(), pairs["source_id"].to_pylist(), strict=True))

    def add(self, rows: pa.Table) -> None:
        """Take note of rows before they are written."""
        # Grouping takes milliseconds however few they are.
        self._known.update(zip(rows["tenant"].to_pylist(), rows["source_id"].to_pylist(), strict=True))

    def forget(self, tenant: str, source: str) -> None:
        """Take note that a source has no row any more."""
        self._known.discard((tenant, source))

    def within(self, scope: Scope) -> str:
        """Return the condition that keeps a search in scope: empty when every row is, NOWHERE when none can be."""
        mine = {(scope.tenant, source) for source in scope.sources} & self._known
        if not mine or scope.documents == ():
            return NOWHERE
        conditions = []
        if mine != self._known:
            sources = {source for _, source in mine}
            conditions.append(f"source_id IN ({quoted(sorted(sources))})")
            if any(source in sources for tenant, source in self._known if tenant != scope.tenant):
                conditions.append(f"tenant = {quote(scope.tenant)}")
        if scope.documents is not None:
            conditions.append(f"document_id IN ({quoted(scope.documents)})")
        return " AND ".join(conditions)
