"""Files: the API over a tenant's store, and the parts of a request that name a file or a URL.

A stored file is sent inline, as a data URL: no upstream knows this server's files. A file id that this
server does not have is passed on to a server of the Responses API, which may have it, and refused by
every other model. An http or https URL is fetched here only if the settings allow it.
"""

from __future__ import annotations

import asyncio
import mimetypes
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from convo.endpoints.base import FilePage, SortOrder
from convo.errors import RequestRefused
from convo.history.items import Item, Json
from convo.history.tree import derive, where
from convo.responses_api import errors
from convo.responses_api.validation import validate_value
from convo.stores.base import FileQuota, StoredFile

if TYPE_CHECKING:
    from convo.config.sections import FileSettings
    from convo.responses_api.remote_files import FetchFile
    from convo.runtime import Clock, NewId
    from convo.stores.base import Store

PURPOSES = ("assistants", "batch", "fine-tune", "vision", "user_data", "evals")
MIN_LIFETIME_S, MAX_LIFETIME_S = 3600, 2_592_000
MAX_PAGE_FILES = 10_000
MAX_NAME_CHARS = 255
MAX_INLINED_BYTES = 64 * 1024 * 1024
"""Bytes of the files of one request together, before they are encoded."""

MAX_FETCHED_URLS = 20
"""URLs that are fetched for one request."""

CONTENT_FIELDS = ("content", "output")
"""Fields of items that may be lists of parts."""

FILE_PARTS = ("input_image", "input_file")
"""Types of parts that may be files."""

DEFAULT_MEDIA_TYPE = "application/octet-stream"


class Files:
    """Implements `convo.endpoints.base.FileStorage`."""

    def __init__(self, store: Store, clock: Clock, new_id: NewId, settings: FileSettings, *, stateless: bool) -> None:
        self._store, self._clock, self._new_id, self._settings = store, clock, new_id, settings
        self._stateless = stateless

    async def create(
        self, name: str, content: bytes, media_type: str, purpose: str, expires_after_s: int | None = None
    ) -> Mapping[str, Json]:
        self._check_stateful()
        validate_value("purpose", purpose, {"type": "string", "enum": PURPOSES})
        if expires_after_s is not None:
            validate_value(
                "expires_after.seconds",
                expires_after_s,
                {"type": "integer", "minimum": MIN_LIFETIME_S, "maximum": MAX_LIFETIME_S},
            )
        if len(name) > MAX_NAME_CHARS:
            raise errors.too_long_error("filename", "string", MAX_NAME_CHARS, len(name))
        if len(content) > self._settings.max_file_bytes:
            raise file_too_large_error(self._settings.max_file_bytes)
        await self._store.admin.check_disk_space()
        now = float(int(self._clock.now()))
        file = StoredFile(
            id=f"file-{self._new_id('file').partition('_')[2]}",
            name=name,
            purpose=purpose,
            media_type=choose_media_type(media_type, name),
            size_bytes=len(content),
            created_at=now,
            expires_at=None if expires_after_s is None else now + expires_after_s,
        )
        quota = FileQuota(self._settings.max_files, self._settings.max_total_bytes)
        if not await self._store.add_file(file, content, quota):
            raise RequestRefused(
                f"A key may have {quota.max_files:,} files with {quota.max_bytes:,} bytes together",
                code="file_quota_exceeded",
                param="file",
                hint="delete files, or raise serve.files.max_files and serve.files.max_total_bytes",
            )
        return to_file_resource(file)

    async def list_files(
        self, *, purpose: str | None = None, after: str | None = None, limit: int = MAX_PAGE_FILES,
        order: SortOrder = "desc",
    ) -> FilePage:  # fmt: skip
        self._check_stateful()
        validate_value("limit", limit, {"type": "integer", "minimum": 1, "maximum": MAX_PAGE_FILES})
        now = self._clock.now()
        files = [file for file in await self._store.files() if not is_expired(file, now)]
        if order == "desc":
            files.reverse()
        if after is not None:
            ids = [file.id for file in files]
            if after not in ids:
                raise errors.unknown_cursor_error("after", after)
            files = files[ids.index(after) + 1 :]
        selected = [file for file in files if purpose is None or file.purpose == purpose]
        return FilePage([to_file_resource(file) for file in selected[:limit]], has_more=len(selected) > limit)

    async def retrieve(self, file_id: str) -> Mapping[str, Json]:
        return to_file_resource(await self._load(file_id))

    async def read(self, file_id: str) -> tuple[str, bytes]:
        file = await self._load(file_id)
        content = await self._store.file_content(file_id)
        if content is None:
            raise file_not_found_error(file_id)
        return file.name, content

    async def delete(self, file_id: str) -> None:
        await self._load(file_id)
        await self._store.remove_file(file_id)

    async def _load(self, file_id: str) -> StoredFile:
        self._check_stateful()
        file = await self._store.file(file_id)
        if file is None or is_expired(file, self._clock.now()):
            raise file_not_found_error(file_id)
        return file

    def _check_stateful(self) -> None:
        if self._stateless:
            raise errors.stateless_server_error("file")


@dataclass(frozen=True, slots=True)
class FileResolver:
    """Puts the content of files into the input of a model request.

    fetch:  fetches a URL; None passes URLs on unchanged
    """

    store: Store
    clock: Clock
    fetch: FetchFile | None = None

    async def resolve(self, items: Sequence[Item], *, keep_unknown: bool) -> Sequence[Item]:
        """Return `items` with the content of their files inline.

        keep_unknown:  pass on the id of a file that this server does not have

        Raises RequestRefused with the location of the part.
        """
        if not self.has_files(items):
            return items
        budget = _Budget()
        return [await self._resolve_item(item, f"input[{n}]", budget, keep_unknown) for n, item in enumerate(items)]

    def has_files(self, items: Sequence[Item]) -> bool:
        """Whether an item has a file to put inline."""
        with_files = (items[index] for index in derive(items, _ITEMS_WITH_FILES))
        return any(self._is_resolvable(part) for item in with_files for part in _file_parts(item))

    def _is_resolvable(self, part: Json) -> bool:
        return bool(find_file_id(part)) or (self.fetch is not None and find_url(part) is not None)

    async def _resolve_item(self, item: Item, location: str, budget: _Budget, keep_unknown: bool) -> Item:
        resolved: dict[str, Json] = {}
        for field in CONTENT_FIELDS:
            parts = item.get(field)
            if isinstance(parts, list) and any(map(self._is_resolvable, parts)):
                resolved[field] = [
                    await self._resolve_part(part, f"{location}.{field}[{n}]", budget, keep_unknown)
                    for n, part in enumerate(parts)
                ]
        return {**item, **resolved} if resolved else item

    async def _resolve_part(self, part: Json, location: str, budget: _Budget, keep_unknown: bool) -> Json:
        file_id, url = find_file_id(part), find_url(part)
        if file_id:
            file = await self.store.file(file_id)
            content = None
            if file is not None and not is_expired(file, self.clock.now()):
                budget.add_bytes(file.size_bytes, location)
                content = await self.store.file_content(file_id)
            if file is None or content is None:
                if keep_unknown:
                    return part
                raise RequestRefused(
                    f"No such File object: '{file_id}'",
                    code="file_not_found",
                    param=f"{location}.file_id",
                    hint="upload it with POST /v1/files",
                )
            return await self._inline(part, file.name, file.media_type, content, location)
        if url is None or self.fetch is None:
            return part
        budget.add_url(location)
        fetched = await self.fetch(url, f"{location}.{'image_url' if part['type'] == 'input_image' else 'file_url'}")
        budget.add_bytes(len(fetched.content), location)
        return await self._inline(part, fetched.name, fetched.media_type, fetched.content, location)

    async def _inline(self, part: Json, name: str, media_type: str, content: bytes, location: str) -> Json:
        """Return `part` with the content as a data URL."""
        rest = {key: value for key, value in part.items() if key not in ("file_id", "file_url", "image_url")}
        if part["type"] == "input_image" and not media_type.startswith("image/"):
            raise RequestRefused(
                f"The file of an image has the media type '{media_type}'", code="invalid_image", param=location
            )
        data_url = f"data:{media_type};base64,{(await asyncio.to_thread(b64encode, content)).decode()}"
        if part["type"] == "input_image":
            return {**rest, "image_url": data_url}
        return {**rest, "filename": part.get("filename") or name, "file_data": data_url}


class _Budget:
    """Counts the files of one request."""

    def __init__(self) -> None:
        self._bytes = self._urls = 0

    def add_bytes(self, size_bytes: int, location: str) -> None:
        self._bytes += size_bytes
        if self._bytes > MAX_INLINED_BYTES:
            raise RequestRefused(
                f"The files of this request are larger than {MAX_INLINED_BYTES:,} bytes together",
                code="files_too_large",
                param=location,
            )

    def add_url(self, location: str) -> None:
        self._urls += 1
        if self._urls > MAX_FETCHED_URLS:
            raise RequestRefused(
                f"A request may have at most {MAX_FETCHED_URLS} URLs of files", code="too_many_urls", param=location
            )


def find_file_id(part: Json) -> str | None:
    """Return the file id of an image or file without its content; None for every other part."""
    if not isinstance(part, Mapping) or part.get("type") not in FILE_PARTS:
        return None
    file_id = part.get("file_id")
    return file_id if isinstance(file_id, str) and file_id and not part.get("file_data") else None


def find_url(part: Json) -> str | None:
    """Return the http or https URL of an image or file; None for every other part."""
    if not isinstance(part, Mapping):
        return None
    url = {"input_image": part.get("image_url"), "input_file": part.get("file_url")}.get(str(part.get("type")))
    return url if isinstance(url, str) and url[:8].lower().startswith(("http://", "https://")) else None


def _file_parts(item: Item) -> list[Json]:
    lists = [parts for field in CONTENT_FIELDS if isinstance(parts := item.get(field), list)]
    return [part for parts in lists for part in parts if isinstance(part, dict) and part.get("type") in FILE_PARTS]


_ITEMS_WITH_FILES = where(_file_parts)


def is_expired(file: StoredFile, now: float) -> bool:
    return file.expires_at is not None and file.expires_at <= now


def choose_media_type(sent: str, name: str) -> str:
    """Return the media type without parameters: as sent, or guessed from the name if none was sent."""
    media_type = sent.partition(";")[0].strip().lower()
    if media_type in ("", DEFAULT_MEDIA_TYPE):
        media_type = mimetypes.guess_type(name, strict=False)[0] or DEFAULT_MEDIA_TYPE
    return media_type if media_type.isascii() and media_type.isprintable() else DEFAULT_MEDIA_TYPE


def to_file_resource(file: StoredFile) -> dict[str, Json]:
    return {
        "id": file.id,
        "object": "file",
        "bytes": file.size_bytes,
        "created_at": int(file.created_at),
        "expires_at": None if file.expires_at is None else int(file.expires_at),
        "filename": file.name,
        "purpose": file.purpose,
        "status": "processed",
        "status_details": None,
    }


def file_not_found_error(file_id: str) -> RequestRefused:
    return RequestRefused(f"No such File object: '{file_id[:64]}'", status=404, param="id")


def file_too_large_error(max_bytes: int) -> RequestRefused:
    return RequestRefused(
        f"The file is larger than {max_bytes:,} bytes",
        code="file_too_large",
        status=413,
        param="file",
        hint="raise serve.files.max_file_bytes",
    )
