"""Encryption of compaction items: keys, tenants, versions and errors."""

import pytest

from convo.compaction.window import CompactionContent
from convo.errors import RequestRefused
from convo.history.items import Item
from convo.responses_api.encryption import ENCRYPTED_PREFIX, CompactionCipher
from convo.secrets import Secret
from convo.stores.base import Store
from convo.stores.memory import MemoryStore
from tests.compaction.history_strategies import message

CONTENT = CompactionContent("local", (message("developer", "Be brief."),), "They looked.", (message("user", "Again."),))


async def encrypt(cipher: CompactionCipher, content: CompactionContent = CONTENT) -> Item:
    return {"type": "compaction", "id": "cmp_1", "encrypted_content": await cipher.encrypt(content)}


async def decrypt(cipher: CompactionCipher, item: Item) -> CompactionContent | None:
    return (await cipher.load_decryptor())(item)


async def decryption_error(cipher: CompactionCipher, item: Item) -> str:
    with pytest.raises(RequestRefused) as caught:
        await decrypt(cipher, item)
    return caught.value.code


async def test_a_compaction_is_decrypted_by_another_replica_with_the_same_store(store: Store) -> None:
    item = await encrypt(CompactionCipher(store))
    assert await decrypt(CompactionCipher(store), item) == CONTENT


async def test_encrypted_content_is_unreadable(store: Store) -> None:
    item = await encrypt(CompactionCipher(store))
    assert item["encrypted_content"].startswith(f"{ENCRYPTED_PREFIX}gAAAA")


@pytest.mark.parametrize("phrase", ["x", "a passphrase of some words", "k" * 5_000, "schlüssel 🔑"])
async def test_a_passphrase_of_any_length_is_a_key_for_separate_databases(phrase: str) -> None:
    here, there = CompactionCipher(MemoryStore(), Secret(phrase)), CompactionCipher(MemoryStore(), Secret(phrase))
    assert await decrypt(there, await encrypt(here)) == CONTENT


async def test_another_gateway_cannot_decrypt_a_compaction() -> None:
    item = await encrypt(CompactionCipher(MemoryStore()))
    assert await decryption_error(CompactionCipher(MemoryStore()), item) == "invalid_encrypted_content"
    assert (
        await decryption_error(CompactionCipher(MemoryStore(), Secret("another")), item) == "invalid_encrypted_content"
    )


async def test_another_tenant_of_the_same_database_cannot_decrypt_a_compaction(store: Store) -> None:
    item = await encrypt(CompactionCipher(store, Secret("shared")))
    assert (
        await decryption_error(CompactionCipher(store.for_tenant("other"), Secret("shared")), item)
        == "invalid_encrypted_content"
    )


async def test_older_compactions_can_be_decrypted_after_a_key_is_set(store: Store) -> None:
    older = await encrypt(CompactionCipher(store))
    assert await decrypt(CompactionCipher(store, Secret("new")), older) == CONTENT


@pytest.mark.parametrize(
    "content",
    [ENCRYPTED_PREFIX, f"{ENCRYPTED_PREFIX}gAAAAAB", f"{ENCRYPTED_PREFIX}\ud83d", f"{ENCRYPTED_PREFIX}{'A' * 1000}"],
)
async def test_a_damaged_compaction_is_refused(store: Store, content: str) -> None:
    item = {"type": "compaction", "encrypted_content": content}
    assert await decryption_error(CompactionCipher(store), item) == "invalid_encrypted_content"


async def test_a_compaction_of_a_newer_version_is_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("convo.compaction.window.COMPACTION_VERSION", 2)
    item = await encrypt(CompactionCipher(store))
    monkeypatch.undo()
    assert await decryption_error(CompactionCipher(store), item) == "invalid_encrypted_content"


@pytest.mark.parametrize("content", ["gAAAAABnPz", "convo1:openai/gpt-5:3f2a9c41d0b7:gAAAAAB"])
async def test_encrypted_content_of_a_provider_is_left_to_the_provider(store: Store, content: str) -> None:
    assert await decrypt(CompactionCipher(store), {"type": "compaction", "encrypted_content": content}) is None


async def test_the_tenant_within_the_encrypted_content_is_decisive(store: Store) -> None:
    item = await encrypt(CompactionCipher(store), CONTENT._replace(tenant="other"))
    assert await decryption_error(CompactionCipher(store), item) == "invalid_encrypted_content"
    assert await decrypt(CompactionCipher(store.for_tenant("other")), item) == CONTENT._replace(tenant="other")
