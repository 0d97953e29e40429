"""Uploaded files: quotas, shared contents, expiry, pruning, tenants."""

import asyncio

import pytest

from convo.errors import NotCanonical, NotFound
from convo.stores.base import FileQuota, PruneResult, Store, StoredFile

NOW = 1_700_000_000.0
QUOTA = FileQuota(max_files=3, max_bytes=100)
PDF = StoredFile("file-1", "a\0b é.pdf", "user_data", "application/pdf", 40, NOW)
CONTENT = bytes(range(40))


async def test_a_file_is_returned_as_it_was_stored_and_only_to_its_tenant(store: Store) -> None:
    assert await store.add_file(PDF, CONTENT, QUOTA)

    assert (await store.file("file-1"), await store.file_content("file-1")) == (PDF, CONTENT)
    guest = store.for_tenant("guest")
    assert (await guest.file("file-1"), await guest.file_content("file-1"), await guest.files()) == (None, None, [])
    with pytest.raises(NotFound):
        await guest.remove_file("file-1")
    assert await guest.add_file(PDF._replace(name="theirs"), b"other", QUOTA)
    assert await store.files() == [PDF]
    assert await guest.file_content("file-1") == b"other"


async def test_the_quota_holds_also_for_uploads_at_the_same_time(store: Store) -> None:
    added = await asyncio.gather(*(store.add_file(PDF._replace(id=f"file-{n}"), CONTENT, QUOTA) for n in range(6)))

    assert sorted(added) == [False] * 4 + [True] * 2  # a shared content counts for each file
    assert await store.add_file(PDF._replace(id="small", size_bytes=20), bytes(20), QUOTA)
    assert not await store.add_file(PDF._replace(id="empty", size_bytes=0), b"", QUOTA)
    assert await store.add_file(PDF._replace(id="more"), CONTENT, FileQuota(4, 140))
    assert [file.id for file in await store.files()][2:] == ["small", "more"]


async def test_a_content_is_kept_until_its_last_file_is_removed(store: Store) -> None:
    big = bytes(50_000)
    quota = FileQuota(10, 10_000_000)
    files = [PDF._replace(id=f"file-{n}", size_bytes=len(big)) for n in range(3)]
    for file in files:
        assert await store.add_file(file, big, quota)
    (stats,) = await store.admin.tenant_stats()
    assert stats.row_counts["files"] == 3
    assert len(big) <= stats.size_bytes < 2 * len(big)

    for file in files[:2]:
        await store.remove_file(file.id)
    assert await store.file_content("file-2") == big
    await store.remove_file("file-2")
    assert await store.admin.tenant_stats() == []
    with pytest.raises(NotFound):
        await store.remove_file("file-2")


async def test_expired_files_are_deleted_by_the_sweep_and_by_the_next_upload(store: Store) -> None:
    guest = store.for_tenant("guest")
    for owner in (store, guest):
        assert await owner.add_file(PDF._replace(expires_at=NOW + 10), CONTENT, QUOTA)
        assert await owner.add_file(PDF._replace(id="kept"), CONTENT, QUOTA)

    assert await store.admin.prune_files(NOW + 9) == 0
    assert await store.add_file(PDF._replace(id="new", created_at=NOW + 10), CONTENT, QUOTA)
    assert [file.id for file in await store.files()] == ["kept", "new"]
    assert await store.admin.prune_files(NOW + 10) in (0, 1)  # SQLite has already deleted the guest's
    assert [file.id for file in await guest.files()] == ["kept"]
    assert await guest.file_content("kept") == CONTENT


async def test_pruning_deletes_files_uploaded_before_the_cutoff(store: Store) -> None:
    assert await store.add_file(PDF, CONTENT, QUOTA)
    assert await store.add_file(PDF._replace(id="new", created_at=NOW + 5), CONTENT, QUOTA)

    assert await store.admin.prune("local", NOW + 5, dry_run=True) == PruneResult(0, 0, 0, 1)
    assert len(await store.files()) == 2
    assert await store.admin.prune("local", NOW + 5, dry_run=False) == PruneResult(0, 0, 0, 1)
    assert [file.id for file in await store.files()] == ["new"]
    assert await store.file_content("new") == CONTENT


async def test_a_name_that_no_database_can_store_is_refused(store: Store) -> None:
    with pytest.raises(NotCanonical):
        await store.add_file(PDF._replace(name="\ud800"), CONTENT, QUOTA)
    assert await store.file("\ud800\0") is None
    assert await store.files() == []
