"""The seal on a compaction item."""

import sys
from dataclasses import replace

import pytest

from convo.compaction import Sealed
from convo.config import Secret
from convo.endpoints.embedded.sealing import FORM, Sealing, is_ours
from convo.errors import Refused
from convo.items import Item
from convo.stores.contract import Store
from convo.stores.memory import MemoryStore
from tests.compaction.histories import message

SEALED = Sealed("local", (message("developer", "Be brief."),), "They looked.", (message("user", "Again."),))


async def sealed_by(sealing: Sealing, sealed: Sealed = SEALED) -> Item:
    return {"type": "compaction", "id": "cmp_1", "encrypted_content": await sealing.seal(sealed)}


async def opened_by(sealing: Sealing, item: Item) -> Sealed | None:
    return (await sealing.opener())(item)


async def refused(sealing: Sealing, item: Item) -> str:
    with pytest.raises(Refused) as caught:
        await opened_by(sealing, item)
    return caught.value.code


async def test_what_one_seals_another_replica_over_the_same_store_opens(store: Store) -> None:
    item = await sealed_by(Sealing(store))
    assert await opened_by(Sealing(store), item) == SEALED


async def test_nothing_of_what_is_sealed_can_be_read(store: Store) -> None:
    item = await sealed_by(Sealing(store))
    assert is_ours(item)
    assert item["encrypted_content"].startswith(f"{FORM}gAAAA")


@pytest.mark.parametrize("phrase", ["x", "a passphrase of some words", "k" * 5_000, "schlüssel 🔑"])
async def test_a_passphrase_of_any_length_is_a_key_for_databases_that_share_nothing(phrase: str) -> None:
    here, there = Sealing(MemoryStore(), Secret(phrase)), Sealing(MemoryStore(), Secret(phrase))
    assert await opened_by(there, await sealed_by(here)) == SEALED


async def test_another_gateway_does_not_open_it() -> None:
    item = await sealed_by(Sealing(MemoryStore()))
    assert await refused(Sealing(MemoryStore()), item) == "invalid_encrypted_content"
    assert await refused(Sealing(MemoryStore(), Secret("another")), item) == "invalid_encrypted_content"


async def test_another_tenant_of_the_same_database_does_not_open_it(store: Store) -> None:
    item = await sealed_by(Sealing(store, Secret("shared")))
    assert await refused(Sealing(store.of("other"), Secret("shared")), item) == "invalid_encrypted_content"


async def test_a_key_that_is_set_later_makes_no_older_item_useless(store: Store) -> None:
    older = await sealed_by(Sealing(store))
    assert await opened_by(Sealing(store, Secret("new")), older) == SEALED


@pytest.mark.parametrize("content", [FORM, f"{FORM}gAAAAAB", f"{FORM}\ud83d", f"{FORM}{'A' * 1000}"])
async def test_a_damaged_item_is_refused_whatever_is_left_of_it(store: Store, content: str) -> None:
    item = {"type": "compaction", "encrypted_content": content}
    assert await refused(Sealing(store), item) == "invalid_encrypted_content"


async def test_an_item_of_a_newer_form_is_refused_and_not_guessed_at(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("convo.compaction.sealed.VERSION", 2)
    item = await sealed_by(Sealing(store))
    monkeypatch.undo()
    assert await refused(Sealing(store), item) == "invalid_encrypted_content"


@pytest.mark.parametrize("content", ["gAAAAABnPz", "convo1:openai/gpt-5:3f2a9c41d0b7:gAAAAAB"])
async def test_what_a_provider_sealed_is_left_to_it(store: Store, content: str) -> None:
    assert await opened_by(Sealing(store), {"type": "compaction", "encrypted_content": content}) is None


async def test_the_tenant_that_stands_inside_is_what_counts(store: Store) -> None:
    item = await sealed_by(Sealing(store), replace(SEALED, tenant="other"))
    assert await refused(Sealing(store), item) == "invalid_encrypted_content"
    assert await opened_by(Sealing(store.of("other")), item) == replace(SEALED, tenant="other")


async def test_without_the_package_that_seals_the_way_to_it_is_said(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "cryptography"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(Refused) as caught:
        await Sealing(store).seal(SEALED)
    assert caught.value.hint == "pip install 'convo-state[serve]'"
