"""Sites and their pages in SQL: what is known of them, and whose turn it is in a sync."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Row
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.chassis.clock import Clock
from services.chassis.database import reading
from services.retrieval.adapters.sql.tables import micros, moment, site_pages, sites
from services.retrieval.domain.errors import SiteNotFound, SourceNotFound
from services.retrieval.domain.library import Source
from services.retrieval.domain.sites import PageOutcome, Site, SiteCounts, SitePage, SiteState

# Longer than a page may take with its waits; two workers with one site do no harm but work.
LEASE = timedelta(minutes=5)
_BATCH = 500
_QUEUED = PageOutcome.QUEUED.value


class SqlSites:
    """Implements the port Sites."""

    def __init__(self, engine: AsyncEngine, clock: Clock, lease: timedelta = LEASE) -> None:
        self._engine = engine
        self._read = reading(engine)
        self._clock = clock
        self._lease = lease

    async def request(self, site: Site) -> Site:
        limits = {
            "max_pages": site.max_pages,
            "max_depth": site.max_depth,
            "every": None if site.every is None else int(site.every.total_seconds()),
        }
        here = sa.and_(sites.c.source_id == site.source_id, sites.c.url == site.url)
        try:
            async with self._engine.begin() as connection:
                known = (await connection.execute(sites.select().where(here).with_for_update())).first()
                if known is None:
                    await connection.execute(sites.insert().values(**_fresh(site), **limits, due=self._now()))
                    await self._seed(connection, site.id, site.url, 1)
                else:
                    await connection.execute(sites.update().where(here).values(limits))
                    if known.state != SiteState.SYNCING.value:
                        await self._begin(connection, known, due=self._now())
                return _to_site((await connection.execute(sites.select().where(here))).one())
        except IntegrityError:
            raise SourceNotFound(site.source_id) from None

    async def claim(self) -> Site | None:
        query = sites.select().where(sites.c.due <= self._now()).order_by(sites.c.due).limit(1)
        async with self._engine.begin() as connection:
            row = (await connection.execute(query.with_for_update(skip_locked=True))).first()
            if row is None:
                return None
            if row.state == SiteState.SYNCING.value:
                await connection.execute(sites.update().where(sites.c.id == row.id).values(due=self._leased()))
            else:
                await self._begin(connection, row, due=self._leased())
            return _to_site((await connection.execute(sites.select().where(sites.c.id == row.id))).one())

    async def recover(self) -> None:
        if self._engine.dialect.name == "sqlite":
            await self._free(sites.c.state == SiteState.SYNCING.value)

    async def release(self, site: Site) -> None:
        await self._free(sites.c.id == site.id, sites.c.sync == site.sync, sites.c.state == SiteState.SYNCING.value)

    async def get(self, source: Source, site_id: str) -> Site:
        this = sa.and_(sites.c.id == site_id, sites.c.source_id == source.id)
        async with self._read.begin() as connection:
            row = (await connection.execute(sites.select().where(this))).first()
        if row is None:
            raise SiteNotFound(site_id)
        return _to_site(row)

    async def of_source(self, source: Source, *, after: str, limit: int) -> list[Site]:
        query = sites.select().where(sites.c.source_id == source.id, sites.c.url > after)
        async with self._read.begin() as connection:
            return [_to_site(row) for row in await connection.execute(query.order_by(sites.c.url).limit(limit))]

    async def counts(self, site_ids: Sequence[str]) -> Mapping[str, SiteCounts]:
        now = site_pages.c.sync == sites.c.sync

        def counted(condition: sa.ColumnElement[bool]) -> sa.Function[Any]:
            return sa.func.sum(sa.case((condition, 1), else_=0))

        query = (
            sa.select(
                sites.c.id,
                counted(site_pages.c.path != "").label("documents"),
                counted(sa.and_(now, site_pages.c.outcome == PageOutcome.FAILED.value)).label("failed"),
                counted(sa.and_(now, site_pages.c.outcome == _QUEUED)).label("waiting"),
            )
            .join(site_pages, site_pages.c.site_id == sites.c.id)
            .where(sites.c.id.in_(site_ids))
            .group_by(sites.c.id)
        )
        async with self._read.begin() as connection:
            rows = await connection.execute(query)
            return {
                row.id: SiteCounts(documents=int(row.documents), failed=int(row.failed), waiting=int(row.waiting))
                for row in rows
            }

    async def next_page(self, site: Site) -> SitePage | None:
        waiting = site_pages.select().where(_of(site), site_pages.c.outcome == _QUEUED)
        async with self._read.begin() as connection:
            row = (await connection.execute(waiting.order_by(site_pages.c.position).limit(1))).first()
        return None if row is None else _to_page(row)

    async def settle(self, site: Site, page: SitePage, links: Sequence[tuple[str, int]], read_bytes: int) -> bool:
        async with self._engine.begin() as connection:
            held = await connection.execute(
                sites.update()
                .where(sites.c.id == site.id, sites.c.sync == site.sync, sites.c.state == SiteState.SYNCING.value)
                .values(due=self._leased(), host=site.host, read_bytes=sites.c.read_bytes + read_bytes)
            )
            if not held.rowcount:
                return False
            last = sa.select(sa.func.coalesce(sa.func.max(site_pages.c.number), 0)).where(
                site_pages.c.site_id == site.id
            )
            number = (await connection.execute(last)).scalar_one() + 1
            await connection.execute(
                site_pages.update()
                .where(site_pages.c.site_id == site.id, site_pages.c.url == page.url)
                .values(sync=site.sync, number=number, **_told(page))
            )
            await self._enqueue(connection, site, links)
            return True

    async def finish(self, site: Site, state: SiteState, message: str) -> None:
        now = self._clock.now()
        mine = sa.and_(sites.c.id == site.id, sites.c.sync == site.sync)
        due = None if site.every is None else micros(now + site.every)
        async with self._engine.begin() as connection:
            await connection.execute(
                sites.update()
                .where(mine)
                .values(state=state.value, message=message, synced_at=micros(now), due=due, host=site.host)
            )

    async def cut(self, site: Site) -> bool:
        async with self._read.begin() as connection:
            query = sa.select(sites.c.cut).where(sites.c.id == site.id)
            return bool((await connection.execute(query)).scalar_one_or_none())

    async def not_named(self, site: Site) -> list[SitePage]:
        query = site_pages.select().where(site_pages.c.site_id == site.id, site_pages.c.sync < site.sync)
        async with self._read.begin() as connection:
            return [_to_page(row) for row in await connection.execute(query.order_by(site_pages.c.url))]

    async def forget(self, page: SitePage) -> None:
        this = sa.and_(site_pages.c.site_id == page.site_id, site_pages.c.url == page.url)
        async with self._engine.begin() as connection:
            await connection.execute(site_pages.delete().where(this))

    async def pages(self, site: Site, *, after: int = 0, limit: int = 500) -> list[SitePage]:
        query = site_pages.select().where(_of(site), site_pages.c.outcome != _QUEUED, site_pages.c.number > after)
        async with self._read.begin() as connection:
            rows = await connection.execute(query.order_by(site_pages.c.number).limit(limit))
            return [_to_page(row) for row in rows]

    async def paths(self, site: Site) -> list[str]:
        query = sa.select(site_pages.c.path).where(site_pages.c.site_id == site.id, site_pages.c.path != "")
        async with self._read.begin() as connection:
            return [row.path for row in await connection.execute(query.distinct())]

    async def holders(self, source_id: str, path: str) -> list[tuple[str, str]]:
        query = (
            sa.select(site_pages.c.site_id, site_pages.c.url)
            .join(sites, sites.c.id == site_pages.c.site_id)
            .where(sites.c.source_id == source_id, site_pages.c.path == path)
        )
        async with self._read.begin() as connection:
            return [(row.site_id, row.url) for row in await connection.execute(query)]

    async def remove(self, site: Site) -> None:
        async with self._engine.begin() as connection:
            await connection.execute(sites.delete().where(sites.c.id == site.id))

    async def _free(self, *which: sa.ColumnElement[bool]) -> None:
        async with self._engine.begin() as connection:
            await connection.execute(sites.update().where(*which).values(due=self._now()))

    async def _begin(self, connection: AsyncConnection, row: Row[Any], *, due: int) -> None:
        fresh = {"state": SiteState.SYNCING.value, "message": "", "cut": False, "read_bytes": 0, "due": due}
        await connection.execute(sites.update().where(sites.c.id == row.id).values(sync=row.sync + 1, **fresh))
        await self._seed(connection, row.id, row.url, row.sync + 1)

    async def _seed(self, connection: AsyncConnection, site_id: str, url: str, sync: int) -> None:
        await self._queue(connection, [_waiting(site_id, url, sync, 0, 0)])

    async def _enqueue(self, connection: AsyncConnection, site: Site, links: Sequence[tuple[str, int]]) -> None:
        """Queue pages that this sync has not named yet, as many as the site may have."""
        if not links:
            return
        depths = dict(reversed(links))
        for at in range(0, len(links), _BATCH):
            urls = [url for url, _ in links[at : at + _BATCH]]
            named = sa.select(site_pages.c.url).where(_of(site), site_pages.c.url.in_(urls))
            for row in await connection.execute(named):
                depths.pop(row.url, None)
        count = sa.select(sa.func.count()).select_from(site_pages).where(_of(site))
        taken = (await connection.execute(count)).scalar_one()
        fresh = [url for url in dict.fromkeys(url for url, _ in links) if url in depths]
        kept = fresh[: max(site.max_pages - taken, 0)]
        await self._queue(
            connection,
            [_waiting(site.id, url, site.sync, depths[url], taken + at) for at, url in enumerate(kept)],
        )
        if len(kept) < len(fresh):
            await connection.execute(sites.update().where(sites.c.id == site.id).values(cut=True))

    async def _queue(self, connection: AsyncConnection, rows: Sequence[dict[str, Any]]) -> None:
        insert = postgresql_insert if connection.dialect.name == "postgresql" else sqlite_insert
        statement = insert(site_pages)
        # What an earlier sync learnt of a page stays: its document and the validators of its last answer.
        anew = {name: statement.excluded[name] for name in ("sync", "position", "depth", "outcome")}
        statement = statement.on_conflict_do_update(index_elements=["site_id", "url"], set_=anew)
        for at in range(0, len(rows), _BATCH):
            await connection.execute(statement, rows[at : at + _BATCH])

    def _now(self) -> int:
        return micros(self._clock.now())

    def _leased(self) -> int:
        return micros(self._clock.now() + self._lease)


def _of(site: Site) -> sa.ColumnElement[bool]:
    """The pages that the site's current sync has named."""
    return sa.and_(site_pages.c.site_id == site.id, site_pages.c.sync == site.sync)


def _fresh(site: Site) -> dict[str, Any]:
    return {
        "id": site.id,
        "tenant": site.tenant,
        "source_id": site.source_id,
        "url": site.url,
        "state": SiteState.SYNCING.value,
        "message": "",
        "sync": 1,
        "host": "",
        "cut": False,
        "read_bytes": 0,
        "synced_at": None,
    }


def _waiting(site_id: str, url: str, sync: int, depth: int, position: int) -> dict[str, Any]:
    page = SitePage(site_id=site_id, url=url, depth=depth)
    return {"site_id": site_id, "url": url, "sync": sync, "position": position, "number": 0, **_told(page)}


def _told(page: SitePage) -> dict[str, Any]:
    return {
        "depth": page.depth,
        "outcome": page.outcome.value,
        "message": page.message,
        "path": page.path,
        "passages": page.passages,
        "etag": page.etag,
        "last_modified": page.last_modified,
        "links": json.dumps(page.links),
    }


def _to_site(row: Row[Any]) -> Site:
    return Site(
        id=row.id,
        tenant=row.tenant,
        source_id=row.source_id,
        url=row.url,
        max_pages=row.max_pages,
        max_depth=row.max_depth,
        every=None if row.every is None else timedelta(seconds=row.every),
        state=SiteState(row.state),
        message=row.message,
        sync=row.sync,
        host=row.host,
        cut=bool(row.cut),
        read_bytes=row.read_bytes,
        synced_at=None if row.synced_at is None else moment(row.synced_at),
    )


def _to_page(row: Row[Any]) -> SitePage:
    return SitePage(
        site_id=row.site_id,
        url=row.url,
        depth=row.depth,
        outcome=PageOutcome(row.outcome),
        message=row.message,
        path=row.path,
        passages=row.passages,
        etag=row.etag,
        last_modified=row.last_modified,
        links=tuple(json.loads(row.links)),
        number=row.number,
    )
