"""The inspector reads the path that it shows: the forks of a response do not slow down its pages."""

from typing import Any

import pytest

from convo.errors import DamagedRow
from convo.history.items import assistant_message, user_message
from convo.history.tree import Path, root_key
from convo.stores.base import AppendItems, Transaction
from tests.server.gateway import RunningGateway
from tests.stores.chat_transactions import NOW, link

FORKS = 30


def store_forks(gateway: RunningGateway, count: int = FORKS) -> None:
    """Store a chain of three requests, and `count` forks under the second of them."""
    root = root_key("local")
    paths, links = [Path(root)], []
    for number in range(3):
        input_path = paths[-1].append([user_message(f"question {number}")])
        paths.append(input_path.append([assistant_message(f"answer {number}")]))
        parent = f"resp_{number - 1}" if number else None
        links.append(link(f"resp_{number}", input_path.head, paths[-1].head, parent_id=parent, created_at=NOW + number))
    forks = [paths[2].append([user_message(f"fork {number}")]) for number in range(count)]
    links += [link(f"resp_fork{number}", fork.head, fork.head, parent_id="resp_1") for number, fork in enumerate(forks)]
    appends = [AppendItems(root, paths[-1].items), *(AppendItems(paths[2].head, fork.items[-1:]) for fork in forks)]
    gateway.run(gateway.store.commit(Transaction(tuple(appends), tuple(links))))


def get(gateway: RunningGateway, path: str) -> Any:
    response = gateway.http.get(f"/inspect/api/{path}")
    assert response.status_code == 200, response.text
    return response.json()


def test_a_request_has_its_own_path_and_its_parent(stored_gateway: RunningGateway) -> None:
    store_forks(stored_gateway)
    data = get(stored_gateway, "requests/resp_2")
    assert [entry["response_id"] for entry in data["links"]] == ["resp_1", "resp_2"]
    assert (len(data["items"]), data["continued"]) == (6, [])
    assert [entry["items_saw"] for entry in data["links"]] == [3, 5]
    compared = get(stored_gateway, "requests/resp_2?compare=resp_fork7")
    assert {entry["response_id"] for entry in compared["links"]} == {"resp_1", "resp_2", "resp_fork7"}
    continued = get(stored_gateway, "requests/resp_1")["continued"]
    assert len(continued) == 20
    assert set(continued) <= {"resp_2", *(f"resp_fork{number}" for number in range(FORKS))}


@pytest.mark.parametrize("path", ["requests/resp_9", "requests/resp_2?compare=resp_9"])
def test_an_unknown_request_is_not_found(stored_gateway: RunningGateway, path: str) -> None:
    store_forks(stored_gateway)
    assert stored_gateway.http.get(f"/inspect/api/{path}").status_code == 404


def test_code_export_and_pane_read_no_fork(stored_gateway: RunningGateway) -> None:
    store_forks(stored_gateway)
    reported: list[DamagedRow] = []
    stored_gateway.store.admin.set_damaged_row_observer(reported.append)
    database = stored_gateway.store.database  # type: ignore[attr-defined]
    damage = "UPDATE links SET status = 'damaged' WHERE id LIKE 'resp_fork%'"
    stored_gateway.run(database.write(lambda db: db.execute(damage)))
    for path in ("requests/resp_2", "requests/resp_2/code", "conversations/resp_2/export"):
        assert stored_gateway.http.get(f"/inspect/api/{path}").status_code == 200
    assert reported == []
    assert len(get(stored_gateway, "conversations/resp_2")["links"]) == 3
    assert len({error.key for error in reported}) == FORKS
