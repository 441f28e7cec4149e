"""Expected failures of retrieval."""

from __future__ import annotations

import grpc

from services.chassis.errors import PermissionDenied, ServiceError


class SourceNotFound(ServiceError):
    """The source does not exist, or the principal may not know that it does."""

    code = grpc.StatusCode.NOT_FOUND
    reason = "SOURCE_NOT_FOUND"

    def __init__(self, source: str) -> None:
        super().__init__(f"there is no source '{source}' you may read; list the sources", metadata={"source": source})


class SourceExists(ServiceError):
    """A source of that name exists in the tenant."""

    code = grpc.StatusCode.ALREADY_EXISTS
    reason = "SOURCE_EXISTS"

    def __init__(self, name: str) -> None:
        super().__init__(f"a source named '{name}' exists; use it or take another name", metadata={"source": name})


class NotYourSource(PermissionDenied):
    """The source belongs to somebody else."""

    def __init__(self, name: str, owner: str) -> None:
        super().__init__(f"source '{name}' belongs to '{owner}', who alone may change it", metadata={"source": name})


class DocumentNotFound(ServiceError):
    """The document does not exist in this source."""

    code = grpc.StatusCode.NOT_FOUND
    reason = "DOCUMENT_NOT_FOUND"

    def __init__(self, document: str) -> None:
        super().__init__(f"there is no document '{document}' in this source", metadata={"document": document})


class PassageNotFound(ServiceError):
    """The passage never existed, or its document was changed or deleted since."""

    code = grpc.StatusCode.NOT_FOUND
    reason = "PASSAGE_NOT_FOUND"

    def __init__(self, passage: str) -> None:
        super().__init__(f"passage '{passage}' does not exist any more; search again", metadata={"passage": passage})


class FilterInvalid(ServiceError):
    """The filter expression cannot be read."""

    code = grpc.StatusCode.INVALID_ARGUMENT
    reason = "FILTER_INVALID"


class IndexUnavailable(ServiceError):
    """The index or an embedder does not answer."""

    code = grpc.StatusCode.UNAVAILABLE
    reason = "INDEX_UNAVAILABLE"


class SummarizerUnavailable(ServiceError):
    """The model that writes summaries does not answer."""

    code = grpc.StatusCode.UNAVAILABLE
    reason = "UNAVAILABLE"


class UrlForbidden(ServiceError):
    """The address is not a public one, or the page may not be fetched."""

    code = grpc.StatusCode.INVALID_ARGUMENT
    reason = "URL_FORBIDDEN"


class PageUnavailable(ServiceError):
    """The page or the web search provider did not answer well."""

    code = grpc.StatusCode.UNAVAILABLE
    reason = "UNAVAILABLE"


class PageGone(PageUnavailable):
    """The page is no more."""


class PageElsewhere(PageUnavailable):
    """The page leads to another site."""


class SiteNotFound(ServiceError):
    """The site does not exist in this source."""

    code = grpc.StatusCode.NOT_FOUND
    reason = "SITE_NOT_FOUND"

    def __init__(self, site: str) -> None:
        super().__init__(f"there is no site '{site}' in this source; list its sites", metadata={"site": site})


class UnreadableFile(Exception):
    """A file cannot be ingested: a stable reason, and one sentence for people. It concerns that file alone."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
