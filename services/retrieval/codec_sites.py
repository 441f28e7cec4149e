"""Sites and their pages as messages of retrieval.v1."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from proctor.retrieval.v1 import source_service_pb2 as source_pb
from services.retrieval.domain.sites import PageOutcome, SitePage, SiteState
from services.retrieval.sites import SiteView

_STATES = {
    SiteState.SYNCING: source_pb.SITE_STATE_SYNCING,
    SiteState.DONE: source_pb.SITE_STATE_DONE,
    SiteState.FAILED: source_pb.SITE_STATE_FAILED,
}
_OUTCOMES = {
    PageOutcome.QUEUED: source_pb.PAGE_OUTCOME_UNSPECIFIED,
    PageOutcome.ADDED: source_pb.PAGE_OUTCOME_ADDED,
    PageOutcome.CHANGED: source_pb.PAGE_OUTCOME_CHANGED,
    PageOutcome.UNCHANGED: source_pb.PAGE_OUTCOME_UNCHANGED,
    PageOutcome.FOLLOWED: source_pb.PAGE_OUTCOME_FOLLOWED,
    PageOutcome.SKIPPED: source_pb.PAGE_OUTCOME_SKIPPED,
    PageOutcome.FAILED: source_pb.PAGE_OUTCOME_FAILED,
    PageOutcome.GONE: source_pb.PAGE_OUTCOME_GONE,
}


def from_step(step: SiteView | SitePage) -> source_pb.SyncSiteResponse:
    """Return one step of a sync as a message."""
    if isinstance(step, SiteView):
        return source_pb.SyncSiteResponse(site=from_site(step))
    return source_pb.SyncSiteResponse(
        page=source_pb.SitePage(
            url=step.url,
            outcome=_OUTCOMES[step.outcome],
            message=step.message,
            depth=step.depth,
            passages=step.passages,
        )
    )


def from_site(view: SiteView) -> source_pb.Site:
    """Return a site as a message."""
    site = view.site
    message = source_pb.Site(
        site_id=site.id,
        source_id=site.source_id,
        url=site.url,
        max_pages=site.max_pages,
        max_depth=site.max_depth,
        state=_STATES[site.state],
        message=site.message,
        documents=view.counts.documents,
        failed=view.counts.failed,
        waiting=view.counts.waiting,
    )
    if site.every is not None:
        every = Duration()
        every.FromTimedelta(site.every)
        message.every.CopyFrom(every)
    if site.synced_at is not None:
        synced_at = Timestamp()
        synced_at.FromDatetime(site.synced_at)
        message.synced_at.CopyFrom(synced_at)
    return message
