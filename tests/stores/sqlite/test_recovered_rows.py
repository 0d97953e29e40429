"""`convo store recover` after the damage of single rows: which rows it repairs, deletes and creates.

A changed row is listed twice: as it was (-) and as it is (+). Keys and hashes are compared by `check_database`.
"""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path as File

import pytest

from convo.errors import ConvoError
from convo.history.items import user_message
from convo.stores.base import RecoveryReport
from convo.stores.factory import open_store
from convo.stores.sqlite.check import check_database
from convo.stores.sqlite.recover import recover_database
from tests.stores.sample_store import fill_store
from tests.stores.sqlite.file_damage import pages_of, zero_pages

TABLES = {
    "tenants": "n, name",
    "items": "tenant, n, body",
    "nodes": "tenant, n, parent, item, erased",
    "repeated": "tenant, n, body",
    "sessions": "tenant, n, CASE WHEN id IN ('ses_2', 'ses_3') THEN id ELSE 'new' END,"
    " name, head, mark, written, link, used_at, record",
    "links": "tenant, n, id, parent, session, saw, head, sent, route, status,"
    " created_at, previous, parameters, usage, error",
    "conversations": "tenant, n, id, head, length, metadata",
    "members": "tenant, conversation, node, id",
    "runs": "tenant, link, ended_at",
    "events": "tenant, link, body",
    "agent_runs": "tenant, n, id, session",
    "agent_documents": "run, body",
    "agent_calls": "run, id, output",
}


def dump(file: File) -> set[str]:
    with closing(sqlite3.connect(file)) as db:
        return {
            f"{table} {' '.join(map(str, row))}"
            for table, columns in TABLES.items()
            for row in db.execute(f"SELECT {columns} FROM {table}")
        }


def lines_of(report: RecoveryReport) -> list[str]:
    """Return a line for each session: its status, name, items, and the name and items of the rest."""
    return [
        *(f"complete {one.name}" for one in report.complete_sessions),
        *(f"truncated {' '.join(map(str, one[1:]))}".rstrip() for one in report.truncated_sessions),
        *(f"lost {one.name}" for one in report.lost_sessions),
        *(f"recreated {one.name}" for one in report.recreated_sessions),
    ]


INTACT = ["complete early", "complete late"]
RECORD = '["session","local/model",1700000000.0,"embedded",null,null,null,null]'
UNKNOWN_RECORD = '["session","unknown/unknown",0.0,"embedded",null,null,null,null]'
UNKNOWN_ROUTE = '["unknown/unknown","session","embedded",null,null,null,false,null]'
ROUTE = '["local/model","session","embedded",null,null,"conv_1",true,{"input_tokens":0}]'
NUMBER_ROUTE = ROUTE.replace('"conv_1"', "7")
EARLY_RECORD = '["session","local/model",1700000002.0,"embedded",null,null,null,null]'
LATER_RECORD = '["session","local/model",1700000003.0,"embedded",null,null,null,null]'
QUOTED_TEXT = '"input_text","text":"[damaged item; its stored text follows]\\n{bad"}]}'
EVENT = '{"sequence_number":0,"type":"x"}'

CASES: dict[str, tuple[str, list[str], list[str]]] = {
    "nothing": (
        "",
        INTACT,
        [],
    ),
    "the name of the only tenant is lost": (
        "DELETE FROM tenants",
        INTACT,
        [],
    ),
    "an item is lost": (
        "DELETE FROM items WHERE n = 2",
        ["truncated early 1  0", "truncated late 1 late-rest 1"],
        [
            '-conversations 1 1 conv_1 4 3 {"topic":"x"}',
            '-items 1 2 {"type":"message","role":"user","content":[{"type":"input_text","text":"two"}]}',
            "-members 1 1 3 b",
            "-members 1 1 4 c",
            "-nodes 1 3 2 2 None",
            f"-sessions 1 1 ses_2 early 3 3 None 1 1700000000.0 {RECORD}",
            f"-sessions 1 2 ses_3 late 4 4 None 2 1700000000.0 {RECORD}",
            '+conversations 1 1 conv_1 2 1 {"topic":"x"}',
            "+nodes 1 3 2 None ",
            "+nodes 1 5 1 3 None",
            f"+sessions 1 1 ses_2 early 2 2 None 1 1700000000.0 {RECORD}",
            f"+sessions 1 2 ses_3 late 2 2 None 2 1700000000.0 {RECORD}",
            f"+sessions 1 3 new late-rest 5 5 None None 1700000000.0 {RECORD}",
        ],
    ),
    "an item is not JSON": (
        "UPDATE items SET body = '{bad' WHERE n = 2",
        ["truncated early 1 early-rest 1", "truncated late 1 late-rest 2"],
        [
            '-conversations 1 1 conv_1 4 3 {"topic":"x"}',
            '-items 1 2 {"type":"message","role":"user","content":[{"type":"input_text","text":"two"}]}',
            "-members 1 1 3 b",
            "-members 1 1 4 c",
            "-nodes 1 3 2 2 None",
            f"-sessions 1 1 ses_2 early 3 3 None 1 1700000000.0 {RECORD}",
            f"-sessions 1 2 ses_3 late 4 4 None 2 1700000000.0 {RECORD}",
            '+conversations 1 1 conv_1 2 1 {"topic":"x"}',
            f'+items 1 4 {{"type":"message","role":"user","content":[{{"type":{QUOTED_TEXT}',
            "+nodes 1 3 2 None ",
            "+nodes 1 5 1 4 None",
            "+nodes 1 6 5 3 None",
            f"+sessions 1 1 ses_2 early 2 2 None 1 1700000000.0 {RECORD}",
            f"+sessions 1 2 ses_3 late 2 2 None 2 1700000000.0 {RECORD}",
            f"+sessions 1 3 new early-rest 5 5 None None 1700000000.0 {RECORD}",
            f"+sessions 1 4 new late-rest 6 6 None None 1700000000.0 {RECORD}",
        ],
    ),
    "an item has another text": (
        "UPDATE items SET body = replace(body, 'two', 'TWO') WHERE n = 2",
        ["truncated early 1 early-rest 1", "truncated late 1 late-rest 2"],
        [
            '-conversations 1 1 conv_1 4 3 {"topic":"x"}',
            '-items 1 2 {"type":"message","role":"user","content":[{"type":"input_text","text":"two"}]}',
            "-members 1 1 3 b",
            "-members 1 1 4 c",
            "-nodes 1 3 2 2 None",
            f"-sessions 1 1 ses_2 early 3 3 None 1 1700000000.0 {RECORD}",
            f"-sessions 1 2 ses_3 late 4 4 None 2 1700000000.0 {RECORD}",
            '+conversations 1 1 conv_1 2 1 {"topic":"x"}',
            '+items 1 2 {"type":"message","role":"user","content":[{"type":"input_text","text":"TWO"}]}',
            "+nodes 1 3 2 None ",
            "+nodes 1 5 1 2 None",
            "+nodes 1 6 5 3 None",
            f"+sessions 1 1 ses_2 early 2 2 None 1 1700000000.0 {RECORD}",
            f"+sessions 1 2 ses_3 late 2 2 None 2 1700000000.0 {RECORD}",
            f"+sessions 1 3 new early-rest 5 5 None None 1700000000.0 {RECORD}",
            f"+sessions 1 4 new late-rest 6 6 None None 1700000000.0 {RECORD}",
        ],
    ),
    "two items have one text": (
        "UPDATE items SET body = (SELECT body FROM items WHERE n = 2) WHERE n = 3",
        INTACT,
        [
            '-items 1 3 {"type":"message","role":"user","content":[{"type":"input_text","text":"three"}]}',
            "-nodes 1 4 3 3 None",
            "+nodes 1 4 3 2 None",
        ],
    ),
    "the root is lost": (
        "DELETE FROM nodes WHERE parent IS NULL",
        INTACT,
        [],
    ),
    "the root has another key": (
        "UPDATE nodes SET key = zeroblob(32) WHERE parent IS NULL",
        INTACT,
        [],
    ),
    "a node is lost": (
        "DELETE FROM nodes WHERE n = 3",
        ["truncated early 1  0", "truncated late 1  0", "recreated recovered-items"],
        [
            '-conversations 1 1 conv_1 4 3 {"topic":"x"}',
            "-links 1 1 resp_2 None 1 2 3 1 2 completed 1700000002.0 None 1 2 None",
            "-links 1 2 resp_3 1 2 3 4 1 2 completed 1700000003.0 None 1 3 None",
            "-members 1 1 3 b",
            "-members 1 1 4 c",
            "-nodes 1 3 2 2 None",
            "-nodes 1 4 3 3 None",
            f"-sessions 1 1 ses_2 early 3 3 None 1 1700000000.0 {RECORD}",
            '+conversations 1 1 conv_1 2 1 {"topic":"x"}',
            "+links 1 1 resp_2 None 1 2 2 1 2 completed 1700000002.0 None 1 2 None",
            "+links 1 2 resp_3 1 2 1 4 1 2 completed 1700000003.0 None 1 3 None",
            "+nodes 1 4 1 3 None",
            "+nodes 1 5 1 2 None",
            f"+sessions 1 1 ses_2 early 2 2 None 1 1700000000.0 {RECORD}",
            f"+sessions 1 3 new recovered-items 5 5 None None 0.0 {UNKNOWN_RECORD}",
        ],
    ),
    "the last node is lost": (
        "DELETE FROM nodes WHERE n = 4",
        ["complete early", "truncated late 2  0", "recreated recovered-items"],
        [
            '-conversations 1 1 conv_1 4 3 {"topic":"x"}',
            "-links 1 2 resp_3 1 2 3 4 1 2 completed 1700000003.0 None 1 3 None",
            "-members 1 1 4 c",
            "-nodes 1 4 3 3 None",
            f"-sessions 1 2 ses_3 late 4 4 None 2 1700000000.0 {RECORD}",
            '+conversations 1 1 conv_1 3 2 {"topic":"x"}',
            "+links 1 2 resp_3 1 2 3 3 1 2 completed 1700000003.0 None 1 3 None",
            "+nodes 1 4 1 3 None",
            f"+sessions 1 2 ses_3 late 3 3 None 2 1700000000.0 {RECORD}",
            f"+sessions 1 3 new recovered-items 4 4 None None 0.0 {UNKNOWN_RECORD}",
        ],
    ),
    "a node has another parent": (
        "UPDATE nodes SET parent = 99 WHERE n = 3",
        ["truncated early 1 early-rest 1", "truncated late 2  0"],
        [
            '-conversations 1 1 conv_1 4 3 {"topic":"x"}',
            "-members 1 1 2 a",
            "-nodes 1 3 2 2 None",
            f"-sessions 1 1 ses_2 early 3 3 None 1 1700000000.0 {RECORD}",
            '+conversations 1 1 conv_1 4 2 {"topic":"x"}',
            "+nodes 1 3 1 2 None",
            f"+sessions 1 1 ses_2 early 2 2 None 1 1700000000.0 {RECORD}",
            f"+sessions 1 3 new early-rest 3 3 None None 1700000000.0 {RECORD}",
        ],
    ),
    "a node has another parent and the hash of its item is lost": (
        "DELETE FROM hashes; UPDATE nodes SET parent = 99 WHERE n = 3",
        ["truncated early 1 early-rest 1", "truncated late 2  0"],
        [
            '-conversations 1 1 conv_1 4 3 {"topic":"x"}',
            "-members 1 1 2 a",
            "-nodes 1 3 2 2 None",
            f"-sessions 1 1 ses_2 early 3 3 None 1 1700000000.0 {RECORD}",
            '+conversations 1 1 conv_1 4 2 {"topic":"x"}',
            "+nodes 1 3 1 2 None",
            f"+sessions 1 1 ses_2 early 2 2 None 1 1700000000.0 {RECORD}",
            f"+sessions 1 3 new early-rest 3 3 None None 1700000000.0 {RECORD}",
        ],
    ),
    "the first node has another parent": (
        "UPDATE nodes SET parent = 99 WHERE n = 2",
        INTACT,
        [],
    ),
    "a node has another key": (
        "UPDATE nodes SET key = zeroblob(32) WHERE n = 3",
        INTACT,
        [],
    ),
    "a node has no item": (
        "UPDATE nodes SET item = NULL WHERE n = 3",
        ["truncated early 1  0", "truncated late 1 late-rest 1", "recreated recovered-items"],
        [
            '-conversations 1 1 conv_1 4 3 {"topic":"x"}',
            "-members 1 1 3 b",
            "-members 1 1 4 c",
            "-nodes 1 3 2 2 None",
            f"-sessions 1 1 ses_2 early 3 3 None 1 1700000000.0 {RECORD}",
            f"-sessions 1 2 ses_3 late 4 4 None 2 1700000000.0 {RECORD}",
            '+conversations 1 1 conv_1 2 1 {"topic":"x"}',
            "+nodes 1 3 2 None ",
            "+nodes 1 5 1 3 None",
            "+nodes 1 6 1 2 None",
            f"+sessions 1 1 ses_2 early 2 2 None 1 1700000000.0 {RECORD}",
            f"+sessions 1 2 ses_3 late 2 2 None 2 1700000000.0 {RECORD}",
            f"+sessions 1 3 new late-rest 5 5 None None 1700000000.0 {RECORD}",
            f"+sessions 1 4 new recovered-items 6 6 None None 0.0 {UNKNOWN_RECORD}",
        ],
    ),
    "routes and parameters are lost": (
        "DELETE FROM repeated",
        INTACT,
        [
            "-links 1 1 resp_2 None 1 2 3 1 2 completed 1700000002.0 None 1 2 None",
            "-links 1 2 resp_3 1 2 3 4 1 2 completed 1700000003.0 None 1 3 None",
            '-repeated 1 1 {"instructions":"Be brief."}',
            f"-repeated 1 2 {ROUTE}",
            "+links 1 1 resp_2 None 1 2 3 1 1 completed 1700000002.0 None None None None",
            "+links 1 2 resp_3 1 2 3 4 1 1 completed 1700000003.0 None None None None",
            f"+repeated 1 1 {UNKNOWN_ROUTE}",
        ],
    ),
    "routes and parameters are not JSON": (
        "UPDATE repeated SET body = '{'",
        INTACT,
        [
            "-links 1 1 resp_2 None 1 2 3 1 2 completed 1700000002.0 None 1 2 None",
            "-links 1 2 resp_3 1 2 3 4 1 2 completed 1700000003.0 None 1 3 None",
            '-repeated 1 1 {"instructions":"Be brief."}',
            f"-repeated 1 2 {ROUTE}",
            "+links 1 1 resp_2 None 1 2 3 1 1 completed 1700000002.0 None None None None",
            "+links 1 2 resp_3 1 2 3 4 1 1 completed 1700000003.0 None None None None",
            f"+repeated 1 1 {UNKNOWN_ROUTE}",
        ],
    ),
    "a route has other fields": (
        "UPDATE repeated SET body = '[1]' WHERE n = 2",
        INTACT,
        [
            "-links 1 1 resp_2 None 1 2 3 1 2 completed 1700000002.0 None 1 2 None",
            "-links 1 2 resp_3 1 2 3 4 1 2 completed 1700000003.0 None 1 3 None",
            f"-repeated 1 2 {ROUTE}",
            "+links 1 1 resp_2 None 1 2 3 1 3 completed 1700000002.0 None 1 None None",
            "+links 1 2 resp_3 1 2 3 4 1 3 completed 1700000003.0 None 1 None None",
            "+repeated 1 2 [1]",
            f"+repeated 1 3 {UNKNOWN_ROUTE}",
        ],
    ),
    "the conversation of a route is a number": (
        "UPDATE repeated SET body = replace(body, '\"conv_1\"', '7') WHERE n = 2",
        INTACT,
        [
            "-links 1 1 resp_2 None 1 2 3 1 2 completed 1700000002.0 None 1 2 None",
            "-links 1 2 resp_3 1 2 3 4 1 2 completed 1700000003.0 None 1 3 None",
            f"-repeated 1 2 {ROUTE}",
            "+links 1 1 resp_2 None 1 2 3 1 3 completed 1700000002.0 None 1 None None",
            "+links 1 2 resp_3 1 2 3 4 1 3 completed 1700000003.0 None 1 None None",
            f"+repeated 1 2 {NUMBER_ROUTE}",
            f"+repeated 1 3 {UNKNOWN_ROUTE}",
        ],
    ),
    "errors are not JSON": (
        "UPDATE links SET error = '{'",
        INTACT,
        [],
    ),
    "metadata are not JSON": (
        "UPDATE conversations SET metadata = '{'",
        INTACT,
        [
            '-conversations 1 1 conv_1 4 3 {"topic":"x"}',
            "+conversations 1 1 conv_1 4 3 {}",
        ],
    ),
    "the output of a call is not JSON": (
        "UPDATE agent_calls SET output = '{'",
        INTACT,
        [
            '-agent_calls 1 call_1 "done"',
            "+agent_calls 1 call_1 null",
        ],
    ),
    "an event is not JSON": (
        "UPDATE events SET body = '{' WHERE link = 2",
        INTACT,
        [
            f"-events 1 2 {EVENT}",
        ],
    ),
    "the document of a run is not JSON": (
        'UPDATE agent_documents SET body = \'{"version":"phase"\'',
        INTACT,
        [
            '-agent_calls 1 call_1 "done"',
            '-agent_documents 1 {"version":1,"agent":"a","phase":"X"}',
            "-agent_runs 1 1 run_1 2",
        ],
    ),
    "a response of another tenant": (
        "UPDATE links SET tenant = 9 WHERE n = 2",
        INTACT,
        [
            f"-events 1 2 {EVENT}",
            "-links 1 2 resp_3 1 2 3 4 1 2 completed 1700000003.0 None 1 3 None",
            "-runs 1 2 None",
            f"-sessions 1 2 ses_3 late 4 4 None 2 1700000000.0 {RECORD}",
            f"+sessions 1 2 ses_3 late 4 4 None None 1700000000.0 {RECORD}",
        ],
    ),
    "a response lacks its input": (
        "UPDATE links SET saw = 99 WHERE n = 2",
        INTACT,
        [],
    ),
    "a response lacks its head": (
        "UPDATE links SET head = 99 WHERE n = 2",
        INTACT,
        [
            "-links 1 2 resp_3 1 2 3 4 1 2 completed 1700000003.0 None 1 3 None",
            "+links 1 2 resp_3 1 2 3 3 1 2 completed 1700000003.0 None 1 3 None",
        ],
    ),
    "a response lacks both nodes": (
        "UPDATE links SET saw = 99, head = 99 WHERE n = 2",
        INTACT,
        [
            f"-events 1 2 {EVENT}",
            "-links 1 2 resp_3 1 2 3 4 1 2 completed 1700000003.0 None 1 3 None",
            "-runs 1 2 None",
            "+links 1 2 resp_3 1 2 None None 1 None None 1700000003.0 None None 3 None",
        ],
    ),
    "a response lacks its parent": (
        "UPDATE links SET parent = 99, previous = '' WHERE n = 2",
        INTACT,
        [
            "-links 1 2 resp_3 1 2 3 4 1 2 completed 1700000003.0 None 1 3 None",
            "+links 1 2 resp_3 None 2 3 4 1 2 completed 1700000003.0 None 1 3 None",
        ],
    ),
    "a response lacks its fields": (
        "UPDATE links SET status = NULL, created_at = NULL, sent = NULL WHERE n = 2",
        INTACT,
        [
            "-links 1 2 resp_3 1 2 3 4 1 2 completed 1700000003.0 None 1 3 None",
            "+links 1 2 resp_3 1 2 3 4 0 2 failed 0.0 None 1 3 None",
        ],
    ),
    "a response is lost": (
        "DELETE FROM links WHERE n = 1",
        INTACT,
        [
            f"-events 1 1 {EVENT}",
            "-links 1 1 resp_2 None 1 2 3 1 2 completed 1700000002.0 None 1 2 None",
            "-links 1 2 resp_3 1 2 3 4 1 2 completed 1700000003.0 None 1 3 None",
            "-runs 1 1 None",
            f"-sessions 1 1 ses_2 early 3 3 None 1 1700000000.0 {RECORD}",
            "+links 1 2 resp_3 None 2 3 4 1 2 completed 1700000003.0 None 1 3 None",
            f"+sessions 1 1 ses_2 early 3 3 None None 1700000000.0 {RECORD}",
        ],
    ),
    "a session is lost": (
        "DELETE FROM sessions WHERE n = 2",
        ["complete early", "recreated recovered-2"],
        [
            f"-sessions 1 2 ses_3 late 4 4 None 2 1700000000.0 {RECORD}",
            f"+sessions 1 2 new recovered-2 4 4 None None 1700000003.0 {LATER_RECORD}",
        ],
    ),
    "a session and a response of the tenant are lost": (
        "DELETE FROM sessions WHERE n = 2; DELETE FROM links WHERE n = 2",
        ["complete early"],
        [
            '-agent_calls 1 call_1 "done"',
            '-agent_documents 1 {"version":1,"agent":"a","phase":"X"}',
            "-agent_runs 1 1 run_1 2",
            f"-events 1 2 {EVENT}",
            "-links 1 2 resp_3 1 2 3 4 1 2 completed 1700000003.0 None 1 3 None",
            "-runs 1 2 None",
            f"-sessions 1 2 ses_3 late 4 4 None 2 1700000000.0 {RECORD}",
        ],
    ),
    "a session has another record": (
        "UPDATE sessions SET record = '[1]' WHERE n = 2",
        INTACT,
        [
            f"-sessions 1 2 ses_3 late 4 4 None 2 1700000000.0 {RECORD}",
            f"+sessions 1 2 ses_3 late 4 4 None 2 1700000000.0 {UNKNOWN_RECORD}",
        ],
    ),
    "a session has no name": (
        "UPDATE sessions SET name = NULL WHERE n = 2",
        ["complete early", "complete recovered-2"],
        [
            f"-sessions 1 2 ses_3 late 4 4 None 2 1700000000.0 {RECORD}",
            f"+sessions 1 2 ses_3 recovered-2 4 4 None 2 1700000000.0 {RECORD}",
        ],
    ),
    "a session lacks its head": (
        "UPDATE sessions SET head = 99 WHERE n = 2",
        ["complete early", "truncated late 3  0"],
        [],
    ),
    "a session lacks its head and its responses": (
        "UPDATE sessions SET head = 99 WHERE n = 2; DELETE FROM links",
        ["complete early", "lost late"],
        [
            f"-events 1 1 {EVENT}",
            f"-events 1 2 {EVENT}",
            "-links 1 1 resp_2 None 1 2 3 1 2 completed 1700000002.0 None 1 2 None",
            "-links 1 2 resp_3 1 2 3 4 1 2 completed 1700000003.0 None 1 3 None",
            "-runs 1 1 None",
            "-runs 1 2 None",
            f"-sessions 1 1 ses_2 early 3 3 None 1 1700000000.0 {RECORD}",
            f"-sessions 1 2 ses_3 late 4 4 None 2 1700000000.0 {RECORD}",
            f"+sessions 1 1 ses_2 early 3 3 None None 1700000000.0 {RECORD}",
            f"+sessions 1 2 ses_3 late 1 1 None None 1700000000.0 {RECORD}",
        ],
    ),
    "a session lacks its marks": (
        "UPDATE sessions SET mark = 99, written = 99 WHERE n = 2",
        INTACT,
        [],
    ),
    "a session lacks its response": (
        "UPDATE sessions SET link = 99, used_at = NULL WHERE n = 2",
        INTACT,
        [
            f"-sessions 1 2 ses_3 late 4 4 None 2 1700000000.0 {RECORD}",
            f"+sessions 1 2 ses_3 late 4 4 None None 0.0 {RECORD}",
        ],
    ),
    "a session of another tenant": (
        "UPDATE sessions SET tenant = 9 WHERE n = 2",
        ["complete early", "recreated recovered-2"],
        [
            f"-sessions 1 2 ses_3 late 4 4 None 2 1700000000.0 {RECORD}",
            f"+sessions 1 2 new recovered-2 4 4 None None 1700000003.0 {LATER_RECORD}",
        ],
    ),
    "a conversation lacks its head": (
        "UPDATE conversations SET head = 99",
        INTACT,
        [],
    ),
    "a conversation has another length": (
        "UPDATE conversations SET length = 7",
        INTACT,
        [],
    ),
    "a conversation of another tenant": (
        "UPDATE conversations SET tenant = 9",
        INTACT,
        [
            '-conversations 1 1 conv_1 4 3 {"topic":"x"}',
            "-members 1 1 2 a",
            "-members 1 1 3 b",
            "-members 1 1 4 c",
        ],
    ),
    "an id is lost": (
        "DELETE FROM members WHERE node = 3",
        INTACT,
        [
            "-members 1 1 3 b",
            "+members 1 1 3 msg_a8603defad91f92866c0c1a34fbc91c5",
        ],
    ),
    "an id of another tenant": (
        "UPDATE members SET tenant = 9 WHERE node = 3",
        INTACT,
        [],
    ),
    "an id of another tenant and of a conversation that is lost": (
        "UPDATE members SET tenant = 9, conversation = 99 WHERE node = 3",
        INTACT,
        [
            "-members 1 1 3 b",
            "+members 1 1 3 msg_a8603defad91f92866c0c1a34fbc91c5",
        ],
    ),
    "runs are lost": (
        "DELETE FROM runs",
        INTACT,
        [
            "-runs 1 1 None",
            "-runs 1 2 None",
            "+runs 1 1 0.0",
            "+runs 1 2 0.0",
        ],
    ),
    "an agent run is lost": (
        "DELETE FROM agent_runs",
        INTACT,
        [
            '-agent_calls 1 call_1 "done"',
            '-agent_documents 1 {"version":1,"agent":"a","phase":"X"}',
            "-agent_runs 1 1 run_1 2",
        ],
    ),
    "an agent run lacks its session": (
        "UPDATE agent_runs SET session = 99",
        INTACT,
        [
            '-agent_calls 1 call_1 "done"',
            '-agent_documents 1 {"version":1,"agent":"a","phase":"X"}',
            "-agent_runs 1 1 run_1 2",
        ],
    ),
    "the document of a run is lost": (
        "DELETE FROM agent_documents",
        INTACT,
        [
            '-agent_calls 1 call_1 "done"',
            '-agent_documents 1 {"version":1,"agent":"a","phase":"X"}',
            "-agent_runs 1 1 run_1 2",
        ],
    ),
    "only items are left": (
        "DELETE FROM nodes; DELETE FROM sessions; DELETE FROM links; DELETE FROM conversations",
        ["recreated recovered-items"],
        [
            '-agent_calls 1 call_1 "done"',
            '-agent_documents 1 {"version":1,"agent":"a","phase":"X"}',
            "-agent_runs 1 1 run_1 2",
            '-conversations 1 1 conv_1 4 3 {"topic":"x"}',
            f"-events 1 1 {EVENT}",
            f"-events 1 2 {EVENT}",
            "-links 1 1 resp_2 None 1 2 3 1 2 completed 1700000002.0 None 1 2 None",
            "-links 1 2 resp_3 1 2 3 4 1 2 completed 1700000003.0 None 1 3 None",
            "-members 1 1 2 a",
            "-members 1 1 3 b",
            "-members 1 1 4 c",
            "-runs 1 1 None",
            "-runs 1 2 None",
            f"-sessions 1 1 ses_2 early 3 3 None 1 1700000000.0 {RECORD}",
            f"-sessions 1 2 ses_3 late 4 4 None 2 1700000000.0 {RECORD}",
            f"+sessions 1 1 new recovered-items 4 4 None None 0.0 {UNKNOWN_RECORD}",
        ],
    ),
    "only items and nodes are left": (
        "DELETE FROM sessions; DELETE FROM links; DELETE FROM conversations",
        ["recreated recovered-4"],
        [
            '-agent_calls 1 call_1 "done"',
            '-agent_documents 1 {"version":1,"agent":"a","phase":"X"}',
            "-agent_runs 1 1 run_1 2",
            '-conversations 1 1 conv_1 4 3 {"topic":"x"}',
            f"-events 1 1 {EVENT}",
            f"-events 1 2 {EVENT}",
            "-links 1 1 resp_2 None 1 2 3 1 2 completed 1700000002.0 None 1 2 None",
            "-links 1 2 resp_3 1 2 3 4 1 2 completed 1700000003.0 None 1 3 None",
            "-members 1 1 2 a",
            "-members 1 1 3 b",
            "-members 1 1 4 c",
            "-runs 1 1 None",
            "-runs 1 2 None",
            f"-sessions 1 1 ses_2 early 3 3 None 1 1700000000.0 {RECORD}",
            f"-sessions 1 2 ses_3 late 4 4 None 2 1700000000.0 {RECORD}",
            f"+sessions 1 1 new recovered-4 4 4 None None 0.0 {UNKNOWN_RECORD}",
        ],
    ),
    "only a fork is left": (
        "DELETE FROM sessions WHERE n = 2; DELETE FROM links; DELETE FROM conversations; DELETE FROM items WHERE n = 1",
        ["truncated early 0 early-rest 1", "recreated recovered-4"],
        [
            '-conversations 1 1 conv_1 4 3 {"topic":"x"}',
            f"-events 1 1 {EVENT}",
            f"-events 1 2 {EVENT}",
            '-items 1 1 {"type":"message","role":"user","content":[{"type":"input_text","text":"one"}]}',
            "-links 1 1 resp_2 None 1 2 3 1 2 completed 1700000002.0 None 1 2 None",
            "-links 1 2 resp_3 1 2 3 4 1 2 completed 1700000003.0 None 1 3 None",
            "-members 1 1 2 a",
            "-members 1 1 3 b",
            "-members 1 1 4 c",
            "-nodes 1 2 1 1 None",
            "-runs 1 1 None",
            "-runs 1 2 None",
            f"-sessions 1 1 ses_2 early 3 3 None 1 1700000000.0 {RECORD}",
            f"-sessions 1 2 ses_3 late 4 4 None 2 1700000000.0 {RECORD}",
            "+nodes 1 2 1 None ",
            "+nodes 1 5 1 2 None",
            "+nodes 1 6 5 3 None",
            f"+sessions 1 1 ses_2 early 1 1 None None 1700000000.0 {RECORD}",
            f"+sessions 1 2 new early-rest 5 5 None None 1700000000.0 {RECORD}",
            f"+sessions 1 3 new recovered-4 6 6 None None 0.0 {UNKNOWN_RECORD}",
        ],
    ),
    "an item is lost and the name of the rest is used": (
        "DELETE FROM items WHERE n = 2; UPDATE sessions SET name = 'late-rest' WHERE n = 1",
        ["truncated late-rest 1  0", "truncated late 1 late-rest-2 1"],
        [
            '-conversations 1 1 conv_1 4 3 {"topic":"x"}',
            '-items 1 2 {"type":"message","role":"user","content":[{"type":"input_text","text":"two"}]}',
            "-members 1 1 3 b",
            "-members 1 1 4 c",
            "-nodes 1 3 2 2 None",
            f"-sessions 1 1 ses_2 early 3 3 None 1 1700000000.0 {RECORD}",
            f"-sessions 1 2 ses_3 late 4 4 None 2 1700000000.0 {RECORD}",
            '+conversations 1 1 conv_1 2 1 {"topic":"x"}',
            "+nodes 1 3 2 None ",
            "+nodes 1 5 1 3 None",
            f"+sessions 1 1 ses_2 late-rest 2 2 None 1 1700000000.0 {RECORD}",
            f"+sessions 1 2 ses_3 late 2 2 None 2 1700000000.0 {RECORD}",
            f"+sessions 1 3 new late-rest-2 5 5 None None 1700000000.0 {RECORD}",
        ],
    ),
    "only one item and its node are left": (
        "DELETE FROM sessions; "
        "DELETE FROM links; "
        "DELETE FROM conversations; "
        "DELETE FROM nodes WHERE n > 2; "
        "DELETE FROM items WHERE n > 1",
        ["recreated recovered-2"],
        [
            '-agent_calls 1 call_1 "done"',
            '-agent_documents 1 {"version":1,"agent":"a","phase":"X"}',
            "-agent_runs 1 1 run_1 2",
            '-conversations 1 1 conv_1 4 3 {"topic":"x"}',
            f"-events 1 1 {EVENT}",
            f"-events 1 2 {EVENT}",
            '-items 1 2 {"type":"message","role":"user","content":[{"type":"input_text","text":"two"}]}',
            '-items 1 3 {"type":"message","role":"user","content":[{"type":"input_text","text":"three"}]}',
            "-links 1 1 resp_2 None 1 2 3 1 2 completed 1700000002.0 None 1 2 None",
            "-links 1 2 resp_3 1 2 3 4 1 2 completed 1700000003.0 None 1 3 None",
            "-members 1 1 2 a",
            "-members 1 1 3 b",
            "-members 1 1 4 c",
            "-nodes 1 3 2 2 None",
            "-nodes 1 4 3 3 None",
            "-runs 1 1 None",
            "-runs 1 2 None",
            f"-sessions 1 1 ses_2 early 3 3 None 1 1700000000.0 {RECORD}",
            f"-sessions 1 2 ses_3 late 4 4 None 2 1700000000.0 {RECORD}",
            f"+sessions 1 1 new recovered-2 2 2 None None 0.0 {UNKNOWN_RECORD}",
        ],
    ),
    "the keys of two tenants are lost": (
        """DELETE FROM tenants; INSERT INTO items (tenant, n, body) VALUES (2, 9, '{"type":"x","a":1}')""",
        ["complete early", "complete late", "recreated recovered-items"],
        [
            '+items 2 9 {"type":"x","a":1}',
            "+nodes 2 5 None None None",
            "+nodes 2 6 5 9 None",
            f"+sessions 2 3 new recovered-items 6 6 None None 0.0 {UNKNOWN_RECORD}",
            "+tenants 2 recovered-2",
        ],
    ),
    "an item and its node have no tenant": (
        "UPDATE items SET tenant = 9 WHERE n = 3; UPDATE nodes SET tenant = 9 WHERE n = 4",
        ["complete early", "truncated late 2  0", "recreated recovered-4"],
        [
            '-conversations 1 1 conv_1 4 3 {"topic":"x"}',
            '-items 1 3 {"type":"message","role":"user","content":[{"type":"input_text","text":"three"}]}',
            "-links 1 2 resp_3 1 2 3 4 1 2 completed 1700000003.0 None 1 3 None",
            "-members 1 1 4 c",
            "-nodes 1 4 3 3 None",
            f"-sessions 1 2 ses_3 late 4 4 None 2 1700000000.0 {RECORD}",
            '+conversations 1 1 conv_1 3 2 {"topic":"x"}',
            '+items 9 3 {"type":"message","role":"user","content":[{"type":"input_text","text":"three"}]}',
            "+links 1 2 resp_3 1 2 3 3 1 2 completed 1700000003.0 None 1 3 None",
            "+nodes 9 4 5 3 None",
            "+nodes 9 5 None None None",
            f"+sessions 1 2 ses_3 late 3 3 None 2 1700000000.0 {RECORD}",
            f"+sessions 9 3 new recovered-4 4 4 None None 0.0 {UNKNOWN_RECORD}",
            "+tenants 9 recovered-9",
        ],
    ),
    "an item has no tenant": (
        "UPDATE items SET tenant = 9 WHERE n = 3",
        ["complete early", "truncated late 2  0", "recreated recovered-items"],
        [
            '-conversations 1 1 conv_1 4 3 {"topic":"x"}',
            '-items 1 3 {"type":"message","role":"user","content":[{"type":"input_text","text":"three"}]}',
            "-members 1 1 4 c",
            "-nodes 1 4 3 3 None",
            f"-sessions 1 2 ses_3 late 4 4 None 2 1700000000.0 {RECORD}",
            '+conversations 1 1 conv_1 3 2 {"topic":"x"}',
            '+items 9 3 {"type":"message","role":"user","content":[{"type":"input_text","text":"three"}]}',
            "+nodes 1 4 3 None ",
            "+nodes 9 5 None None None",
            "+nodes 9 6 5 3 None",
            f"+sessions 1 2 ses_3 late 3 3 None 2 1700000000.0 {RECORD}",
            f"+sessions 9 3 new recovered-items 6 6 None None 0.0 {UNKNOWN_RECORD}",
            "+tenants 9 recovered-9",
        ],
    ),
    "the last item has no item": (
        "UPDATE nodes SET item = NULL WHERE n = 4",
        ["complete early", "truncated late 2  0", "recreated recovered-items"],
        [
            '-conversations 1 1 conv_1 4 3 {"topic":"x"}',
            "-members 1 1 4 c",
            "-nodes 1 4 3 3 None",
            f"-sessions 1 2 ses_3 late 4 4 None 2 1700000000.0 {RECORD}",
            '+conversations 1 1 conv_1 3 2 {"topic":"x"}',
            "+nodes 1 4 3 None ",
            "+nodes 1 5 1 3 None",
            f"+sessions 1 2 ses_3 late 3 3 None 2 1700000000.0 {RECORD}",
            f"+sessions 1 3 new recovered-items 5 5 None None 0.0 {UNKNOWN_RECORD}",
        ],
    ),
    "a node was erased": (
        "UPDATE nodes SET item = NULL, erased = 'msg_1' WHERE n = 3",
        ["complete early", "complete late", "recreated recovered-items"],
        [
            "-nodes 1 3 2 2 None",
            "+nodes 1 3 2 None msg_1",
            "+nodes 1 5 1 2 None",
            f"+sessions 1 3 new recovered-items 5 5 None None 0.0 {UNKNOWN_RECORD}",
        ],
    ),
    "a node has a later parent": (
        "UPDATE nodes SET parent = 4 WHERE n = 3",
        ["truncated early 1 early-rest 1", "truncated late 2  0"],
        [
            '-conversations 1 1 conv_1 4 3 {"topic":"x"}',
            "-members 1 1 2 a",
            "-nodes 1 3 2 2 None",
            f"-sessions 1 1 ses_2 early 3 3 None 1 1700000000.0 {RECORD}",
            '+conversations 1 1 conv_1 4 2 {"topic":"x"}',
            "+nodes 1 3 1 2 None",
            f"+sessions 1 1 ses_2 early 2 2 None 1 1700000000.0 {RECORD}",
            f"+sessions 1 3 new early-rest 3 3 None None 1700000000.0 {RECORD}",
        ],
    ),
    "the links have other sessions": (
        "UPDATE links SET session = 1 WHERE n = 2",
        INTACT,
        [
            "-links 1 2 resp_3 1 2 3 4 1 2 completed 1700000003.0 None 1 3 None",
            "+links 1 2 resp_3 1 1 3 4 1 2 completed 1700000003.0 None 1 3 None",
        ],
    ),
    "a session without name and head": (
        "UPDATE sessions SET name = NULL, head = NULL, mark = NULL WHERE n = 2",
        ["complete early", "truncated recovered-2 3  0"],
        [
            f"-sessions 1 2 ses_3 late 4 4 None 2 1700000000.0 {RECORD}",
            f"+sessions 1 2 ses_3 recovered-2 4 4 None 2 1700000000.0 {RECORD}",
        ],
    ),
    "two sessions without a name": (
        "UPDATE sessions SET name = NULL",
        ["complete recovered-1", "complete recovered-2"],
        [
            f"-sessions 1 1 ses_2 early 3 3 None 1 1700000000.0 {RECORD}",
            f"-sessions 1 2 ses_3 late 4 4 None 2 1700000000.0 {RECORD}",
            f"+sessions 1 1 ses_2 recovered-1 3 3 None 1 1700000000.0 {RECORD}",
            f"+sessions 1 2 ses_3 recovered-2 4 4 None 2 1700000000.0 {RECORD}",
        ],
    ),
    "a session of only an id without responses": (
        "UPDATE sessions SET (record, name, head, mark, written, link, used_at, removed)"
        " = (NULL, NULL, NULL, NULL, NULL, NULL, NULL, 1) WHERE n = 2; UPDATE links SET session = NULL WHERE n = 2",
        ["complete early"],
        [
            '-agent_calls 1 call_1 "done"',
            '-agent_documents 1 {"version":1,"agent":"a","phase":"X"}',
            "-agent_runs 1 1 run_1 2",
            "-links 1 2 resp_3 1 2 3 4 1 2 completed 1700000003.0 None 1 3 None",
            f"-sessions 1 2 ses_3 late 4 4 None 2 1700000000.0 {RECORD}",
            "+links 1 2 resp_3 1 None 3 4 1 2 completed 1700000003.0 None 1 3 None",
        ],
    ),
    "events of a lost response": (
        "UPDATE events SET link = 99 WHERE link = 2",
        INTACT,
        [
            f"-events 1 2 {EVENT}",
        ],
    ),
    "a run has no response": (
        "UPDATE runs SET link = 99 WHERE link = 2",
        INTACT,
        [
            "-runs 1 2 None",
            "+runs 1 2 0.0",
        ],
    ),
    "a run ended": (
        "UPDATE runs SET ended_at = 5.0 WHERE link = 2; DELETE FROM events WHERE link = 2",
        INTACT,
        [
            f"-events 1 2 {EVENT}",
            "-runs 1 2 None",
            "+runs 1 2 5.0",
        ],
    ),
    "the call of a lost run": (
        "UPDATE agent_calls SET run = 99",
        INTACT,
        [
            '-agent_calls 1 call_1 "done"',
        ],
    ),
    "a run of a removed session": (
        "UPDATE sessions SET (record, name, head, mark, written, link, used_at, removed)"
        " = (NULL, NULL, NULL, NULL, NULL, NULL, NULL, 1) WHERE n = 2",
        ["complete early"],
        [
            '-agent_calls 1 call_1 "done"',
            '-agent_documents 1 {"version":1,"agent":"a","phase":"X"}',
            "-agent_runs 1 1 run_1 2",
            f"-sessions 1 2 ses_3 late 4 4 None 2 1700000000.0 {RECORD}",
            "+sessions 1 2 ses_3 None None None None None None None",
        ],
    ),
    "the record of a session is lost": (
        "UPDATE sessions SET record = NULL WHERE n = 2",
        INTACT,
        [
            f"-sessions 1 2 ses_3 late 4 4 None 2 1700000000.0 {RECORD}",
            f"+sessions 1 2 ses_3 late 4 4 None 2 1700000000.0 {UNKNOWN_RECORD}",
        ],
    ),
    "a route fits no usage": (
        "UPDATE links SET usage = '1,2' WHERE n = 2",
        INTACT,
        [
            "-links 1 2 resp_3 1 2 3 4 1 2 completed 1700000003.0 None 1 3 None",
            "+links 1 2 resp_3 1 2 3 4 1 2 completed 1700000003.0 None 1 None None",
        ],
    ),
    "a status is unknown": (
        "UPDATE links SET status = 'x' WHERE n = 2; UPDATE agent_runs SET status = 'x'",
        INTACT,
        [
            '-agent_calls 1 call_1 "done"',
            '-agent_documents 1 {"version":1,"agent":"a","phase":"X"}',
            "-agent_runs 1 1 run_1 2",
            "-links 1 2 resp_3 1 2 3 4 1 2 completed 1700000003.0 None 1 3 None",
            "+links 1 2 resp_3 1 2 3 4 1 2 failed 1700000003.0 None 1 3 None",
        ],
    ),
    "JSON is of another type": (
        "UPDATE links SET error = '[]'; UPDATE conversations SET metadata = '[]';"
        " UPDATE events SET body = '{}' WHERE link = 2; UPDATE agent_documents SET body = '{\"version\":1,\"phase\":2'",
        INTACT,
        [
            '-agent_calls 1 call_1 "done"',
            '-agent_documents 1 {"version":1,"agent":"a","phase":"X"}',
            "-agent_runs 1 1 run_1 2",
            '-conversations 1 1 conv_1 4 3 {"topic":"x"}',
            f"-events 1 2 {EVENT}",
            "+conversations 1 1 conv_1 4 3 {}",
        ],
    ),
    "no session is left and an item has another text": (
        "DELETE FROM sessions; "
        "DELETE FROM links; "
        "DELETE FROM conversations; "
        "UPDATE items SET body = replace(body, 'two', 'TWO') WHERE n = 2",
        ["recreated recovered-4"],
        [
            '-agent_calls 1 call_1 "done"',
            '-agent_documents 1 {"version":1,"agent":"a","phase":"X"}',
            "-agent_runs 1 1 run_1 2",
            '-conversations 1 1 conv_1 4 3 {"topic":"x"}',
            f"-events 1 1 {EVENT}",
            f"-events 1 2 {EVENT}",
            '-items 1 2 {"type":"message","role":"user","content":[{"type":"input_text","text":"two"}]}',
            "-links 1 1 resp_2 None 1 2 3 1 2 completed 1700000002.0 None 1 2 None",
            "-links 1 2 resp_3 1 2 3 4 1 2 completed 1700000003.0 None 1 3 None",
            "-members 1 1 2 a",
            "-members 1 1 3 b",
            "-members 1 1 4 c",
            "-nodes 1 3 2 2 None",
            "-runs 1 1 None",
            "-runs 1 2 None",
            f"-sessions 1 1 ses_2 early 3 3 None 1 1700000000.0 {RECORD}",
            f"-sessions 1 2 ses_3 late 4 4 None 2 1700000000.0 {RECORD}",
            '+items 1 2 {"type":"message","role":"user","content":[{"type":"input_text","text":"TWO"}]}',
            "+nodes 1 3 2 None ",
            "+nodes 1 5 2 2 None",
            "+nodes 1 6 5 3 None",
            f"+sessions 1 1 new recovered-4 6 6 None None 0.0 {UNKNOWN_RECORD}",
        ],
    ),
    "a node with an id lost its item": (
        "DELETE FROM items WHERE n = 3; UPDATE nodes SET erased = 'msg_1' WHERE n = 4",
        ["complete early", "truncated late 2  0"],
        [
            '-conversations 1 1 conv_1 4 3 {"topic":"x"}',
            '-items 1 3 {"type":"message","role":"user","content":[{"type":"input_text","text":"three"}]}',
            "-members 1 1 4 c",
            "-nodes 1 4 3 3 None",
            f"-sessions 1 2 ses_3 late 4 4 None 2 1700000000.0 {RECORD}",
            '+conversations 1 1 conv_1 3 2 {"topic":"x"}',
            "+nodes 1 4 3 None ",
            f"+sessions 1 2 ses_3 late 3 3 None 2 1700000000.0 {RECORD}",
        ],
    ),
    "an item with an id has another text": (
        """UPDATE items SET body = replace(body, '"role"', '"id":"msg_1","role"') WHERE n = 3""",
        ["complete early", "truncated late 2 late-rest 1"],
        [
            '-conversations 1 1 conv_1 4 3 {"topic":"x"}',
            '-items 1 3 {"type":"message","role":"user","content":[{"type":"input_text","text":"three"}]}',
            "-members 1 1 4 c",
            "-nodes 1 4 3 3 None",
            f"-sessions 1 2 ses_3 late 4 4 None 2 1700000000.0 {RECORD}",
            '+conversations 1 1 conv_1 3 2 {"topic":"x"}',
            '+items 1 3 {"type":"message","id":"msg_1","role":"user","content":[{"type":"input_text","text":"three"}]}',
            "+nodes 1 4 3 None msg_1",
            "+nodes 1 5 1 3 None",
            f"+sessions 1 2 ses_3 late 3 3 None 2 1700000000.0 {RECORD}",
            f"+sessions 1 3 new late-rest 5 5 None None 1700000000.0 {RECORD}",
        ],
    ),
    "the root has an item": (
        "UPDATE nodes SET item = 1, erased = 'x' WHERE n = 1",
        INTACT,
        [],
    ),
    "the rowid of the root is used": (
        "UPDATE nodes SET parent = NULL WHERE n = 2; DELETE FROM nodes WHERE n = 1",
        INTACT,
        [],
    ),
    "an event of another tenant": (
        "UPDATE events SET tenant = 9 WHERE link = 2",
        INTACT,
        [
            f"-events 1 2 {EVENT}",
        ],
    ),
    "a call of another tenant": (
        "UPDATE agent_calls SET tenant = 9",
        INTACT,
        [
            '-agent_calls 1 call_1 "done"',
        ],
    ),
    "an agent run of another tenant": (
        "UPDATE agent_runs SET tenant = 9",
        INTACT,
        [
            '-agent_calls 1 call_1 "done"',
            '-agent_documents 1 {"version":1,"agent":"a","phase":"X"}',
            "-agent_runs 1 1 run_1 2",
        ],
    ),
    "parameters of another tenant": (
        "UPDATE repeated SET tenant = 9 WHERE n = 1",
        INTACT,
        [
            "-links 1 1 resp_2 None 1 2 3 1 2 completed 1700000002.0 None 1 2 None",
            "-links 1 2 resp_3 1 2 3 4 1 2 completed 1700000003.0 None 1 3 None",
            '-repeated 1 1 {"instructions":"Be brief."}',
            "+links 1 1 resp_2 None 1 2 3 1 2 completed 1700000002.0 None None 2 None",
            "+links 1 2 resp_3 1 2 3 4 1 2 completed 1700000003.0 None None 3 None",
        ],
    ),
    "the rowid of a session is not positive": (
        "UPDATE sessions SET n = -1 WHERE n = 2; "
        "UPDATE links SET session = -1 WHERE n = 2; "
        "UPDATE agent_runs SET session = -1",
        ["complete early", "recreated late"],
        [
            "-agent_runs 1 1 run_1 2",
            "-links 1 2 resp_3 1 2 3 4 1 2 completed 1700000003.0 None 1 3 None",
            f"-sessions 1 2 ses_3 late 4 4 None 2 1700000000.0 {RECORD}",
            "+agent_runs 1 1 run_1 -1",
            "+links 1 2 resp_3 1 -1 3 4 1 2 completed 1700000003.0 None 1 3 None",
            f"+sessions 1 -1 ses_3 late 4 4 None None 1700000003.0 {LATER_RECORD}",
        ],
    ),
}

LOST_PAGES: dict[str, tuple[list[str], list[str]]] = {
    "header": (
        INTACT,
        [],
    ),
    "tenants": (
        INTACT,
        [],
    ),
    "items": (
        ["lost early", "lost late"],
        [
            '-conversations 1 1 conv_1 4 3 {"topic":"x"}',
            '-items 1 1 {"type":"message","role":"user","content":[{"type":"input_text","text":"one"}]}',
            '-items 1 2 {"type":"message","role":"user","content":[{"type":"input_text","text":"two"}]}',
            '-items 1 3 {"type":"message","role":"user","content":[{"type":"input_text","text":"three"}]}',
            "-members 1 1 2 a",
            "-members 1 1 3 b",
            "-members 1 1 4 c",
            "-nodes 1 2 1 1 None",
            "-nodes 1 3 2 2 None",
            "-nodes 1 4 3 3 None",
            f"-sessions 1 1 ses_2 early 3 3 None 1 1700000000.0 {RECORD}",
            f"-sessions 1 2 ses_3 late 4 4 None 2 1700000000.0 {RECORD}",
            '+conversations 1 1 conv_1 1 0 {"topic":"x"}',
            "+nodes 1 2 1 None ",
            "+nodes 1 3 2 None ",
            "+nodes 1 4 3 None ",
            f"+sessions 1 1 ses_2 early 1 1 None 1 1700000000.0 {RECORD}",
            f"+sessions 1 2 ses_3 late 1 1 None 2 1700000000.0 {RECORD}",
        ],
    ),
    "nodes": (
        INTACT,
        [],
    ),
    "sessions": (
        ["recreated early", "recreated late"],
        [
            f"-sessions 1 1 ses_2 early 3 3 None 1 1700000000.0 {RECORD}",
            f"-sessions 1 2 ses_3 late 4 4 None 2 1700000000.0 {RECORD}",
            f"+sessions 1 1 ses_2 early 3 3 None None 1700000002.0 {EARLY_RECORD}",
            f"+sessions 1 2 ses_3 late 4 4 None None 1700000003.0 {LATER_RECORD}",
        ],
    ),
    "links": (
        INTACT,
        [
            f"-events 1 1 {EVENT}",
            f"-events 1 2 {EVENT}",
            "-links 1 1 resp_2 None 1 2 3 1 2 completed 1700000002.0 None 1 2 None",
            "-links 1 2 resp_3 1 2 3 4 1 2 completed 1700000003.0 None 1 3 None",
            "-runs 1 1 None",
            "-runs 1 2 None",
            f"-sessions 1 1 ses_2 early 3 3 None 1 1700000000.0 {RECORD}",
            f"-sessions 1 2 ses_3 late 4 4 None 2 1700000000.0 {RECORD}",
            f"+sessions 1 1 ses_2 early 3 3 None None 1700000000.0 {RECORD}",
            f"+sessions 1 2 ses_3 late 4 4 None None 1700000000.0 {RECORD}",
        ],
    ),
    "repeated": (
        INTACT,
        [
            "-links 1 1 resp_2 None 1 2 3 1 2 completed 1700000002.0 None 1 2 None",
            "-links 1 2 resp_3 1 2 3 4 1 2 completed 1700000003.0 None 1 3 None",
            '-repeated 1 1 {"instructions":"Be brief."}',
            f"-repeated 1 2 {ROUTE}",
            "+links 1 1 resp_2 None 1 2 3 1 1 completed 1700000002.0 None None None None",
            "+links 1 2 resp_3 1 2 3 4 1 1 completed 1700000003.0 None None None None",
            f"+repeated 1 1 {UNKNOWN_ROUTE}",
        ],
    ),
    "conversations": (
        INTACT,
        [
            '-conversations 1 1 conv_1 4 3 {"topic":"x"}',
            "-members 1 1 2 a",
            "-members 1 1 3 b",
            "-members 1 1 4 c",
        ],
    ),
    "members": (
        INTACT,
        [
            "-members 1 1 2 a",
            "-members 1 1 3 b",
            "-members 1 1 4 c",
            "+members 1 1 2 msg_d1b1ca45ff165e2dd38bb4925b49b060",
            "+members 1 1 3 msg_a8603defad91f92866c0c1a34fbc91c5",
            "+members 1 1 4 msg_82a8659a1160ff2068c7568f4c60e93c",
        ],
    ),
    "hashes and nodes_by_key": (
        INTACT,
        [],
    ),
    "runs": (
        INTACT,
        [
            "-runs 1 1 None",
            "-runs 1 2 None",
            "+runs 1 1 0.0",
            "+runs 1 2 0.0",
        ],
    ),
    "events": (
        INTACT,
        [
            f"-events 1 1 {EVENT}",
            f"-events 1 2 {EVENT}",
        ],
    ),
    "agent_runs": (
        INTACT,
        [
            '-agent_calls 1 call_1 "done"',
            '-agent_documents 1 {"version":1,"agent":"a","phase":"X"}',
            "-agent_runs 1 1 run_1 2",
        ],
    ),
    "agent_documents": (
        INTACT,
        [
            '-agent_calls 1 call_1 "done"',
            '-agent_documents 1 {"version":1,"agent":"a","phase":"X"}',
            "-agent_runs 1 1 run_1 2",
        ],
    ),
    "sessions and links": (
        ["recreated early", "recreated late"],
        [
            f"-events 1 1 {EVENT}",
            f"-events 1 2 {EVENT}",
            "-links 1 1 resp_2 None 1 2 3 1 2 completed 1700000002.0 None 1 2 None",
            "-links 1 2 resp_3 1 2 3 4 1 2 completed 1700000003.0 None 1 3 None",
            "-runs 1 1 None",
            "-runs 1 2 None",
            f"-sessions 1 1 ses_2 early 3 3 None 1 1700000000.0 {RECORD}",
            f"-sessions 1 2 ses_3 late 4 4 None 2 1700000000.0 {RECORD}",
            f"+sessions 1 1 ses_2 early 3 3 None None 0.0 {UNKNOWN_RECORD}",
            f"+sessions 1 2 ses_3 late 4 4 None None 0.0 {UNKNOWN_RECORD}",
        ],
    ),
    "nodes and nodes_by_key": (
        ["lost early", "lost late", "recreated recovered-items"],
        [
            '-conversations 1 1 conv_1 4 3 {"topic":"x"}',
            f"-events 1 1 {EVENT}",
            f"-events 1 2 {EVENT}",
            "-links 1 1 resp_2 None 1 2 3 1 2 completed 1700000002.0 None 1 2 None",
            "-links 1 2 resp_3 1 2 3 4 1 2 completed 1700000003.0 None 1 3 None",
            "-members 1 1 2 a",
            "-members 1 1 3 b",
            "-members 1 1 4 c",
            "-runs 1 1 None",
            "-runs 1 2 None",
            f"-sessions 1 1 ses_2 early 3 3 None 1 1700000000.0 {RECORD}",
            f"-sessions 1 2 ses_3 late 4 4 None 2 1700000000.0 {RECORD}",
            '+conversations 1 1 conv_1 1 0 {"topic":"x"}',
            "+links 1 1 resp_2 None 1 None None 1 None None 1700000002.0 None None 2 None",
            "+links 1 2 resp_3 1 2 None None 1 None None 1700000003.0 None None 3 None",
            f"+sessions 1 1 ses_2 early 1 1 None 1 1700000000.0 {RECORD}",
            f"+sessions 1 2 ses_3 late 1 1 None 2 1700000000.0 {RECORD}",
            f"+sessions 1 3 new recovered-items 4 4 None None 0.0 {UNKNOWN_RECORD}",
        ],
    ),
    "nodes and nodes_by_item": (
        ["lost early", "lost late", "recreated recovered-items"],
        [
            '-conversations 1 1 conv_1 4 3 {"topic":"x"}',
            f"-events 1 1 {EVENT}",
            f"-events 1 2 {EVENT}",
            "-links 1 1 resp_2 None 1 2 3 1 2 completed 1700000002.0 None 1 2 None",
            "-links 1 2 resp_3 1 2 3 4 1 2 completed 1700000003.0 None 1 3 None",
            "-members 1 1 2 a",
            "-members 1 1 3 b",
            "-members 1 1 4 c",
            "-runs 1 1 None",
            "-runs 1 2 None",
            f"-sessions 1 1 ses_2 early 3 3 None 1 1700000000.0 {RECORD}",
            f"-sessions 1 2 ses_3 late 4 4 None 2 1700000000.0 {RECORD}",
            '+conversations 1 1 conv_1 1 0 {"topic":"x"}',
            "+links 1 1 resp_2 None 1 None None 1 None None 1700000002.0 None None 2 None",
            "+links 1 2 resp_3 1 2 None None 1 None None 1700000003.0 None None 3 None",
            f"+sessions 1 1 ses_2 early 1 1 None 1 1700000000.0 {RECORD}",
            f"+sessions 1 2 ses_3 late 1 1 None 2 1700000000.0 {RECORD}",
            f"+sessions 1 3 new recovered-items 4 4 None None 0.0 {UNKNOWN_RECORD}",
        ],
    ),
    "sessions and sessions_by_id and sessions_by_name": (
        ["recreated recovered-1", "recreated recovered-2"],
        [
            f"-sessions 1 1 ses_2 early 3 3 None 1 1700000000.0 {RECORD}",
            f"-sessions 1 2 ses_3 late 4 4 None 2 1700000000.0 {RECORD}",
            f"+sessions 1 1 new recovered-1 3 3 None None 1700000002.0 {EARLY_RECORD}",
            f"+sessions 1 2 new recovered-2 4 4 None None 1700000003.0 {LATER_RECORD}",
        ],
    ),
    "sessions and links and sessions_by_head": (
        ["recreated early", "recreated late"],
        [
            f"-events 1 1 {EVENT}",
            f"-events 1 2 {EVENT}",
            "-links 1 1 resp_2 None 1 2 3 1 2 completed 1700000002.0 None 1 2 None",
            "-links 1 2 resp_3 1 2 3 4 1 2 completed 1700000003.0 None 1 3 None",
            "-runs 1 1 None",
            "-runs 1 2 None",
            f"-sessions 1 1 ses_2 early 3 3 None 1 1700000000.0 {RECORD}",
            f"-sessions 1 2 ses_3 late 4 4 None 2 1700000000.0 {RECORD}",
            f"+sessions 1 1 ses_2 early 1 1 None None 0.0 {UNKNOWN_RECORD}",
            f"+sessions 1 2 ses_3 late 1 1 None None 0.0 {UNKNOWN_RECORD}",
        ],
    ),
    "nodes and items": (
        ["lost early", "lost late"],
        [
            '-conversations 1 1 conv_1 4 3 {"topic":"x"}',
            f"-events 1 1 {EVENT}",
            f"-events 1 2 {EVENT}",
            '-items 1 1 {"type":"message","role":"user","content":[{"type":"input_text","text":"one"}]}',
            '-items 1 2 {"type":"message","role":"user","content":[{"type":"input_text","text":"two"}]}',
            '-items 1 3 {"type":"message","role":"user","content":[{"type":"input_text","text":"three"}]}',
            "-links 1 1 resp_2 None 1 2 3 1 2 completed 1700000002.0 None 1 2 None",
            "-links 1 2 resp_3 1 2 3 4 1 2 completed 1700000003.0 None 1 3 None",
            "-members 1 1 2 a",
            "-members 1 1 3 b",
            "-members 1 1 4 c",
            "-nodes 1 2 1 1 None",
            "-nodes 1 3 2 2 None",
            "-nodes 1 4 3 3 None",
            "-runs 1 1 None",
            "-runs 1 2 None",
            f"-sessions 1 1 ses_2 early 3 3 None 1 1700000000.0 {RECORD}",
            f"-sessions 1 2 ses_3 late 4 4 None 2 1700000000.0 {RECORD}",
            '+conversations 1 1 conv_1 1 0 {"topic":"x"}',
            "+links 1 1 resp_2 None 1 None None 1 None None 1700000002.0 None None 2 None",
            "+links 1 2 resp_3 1 2 None None 1 None None 1700000003.0 None None 3 None",
            f"+sessions 1 1 ses_2 early 1 1 None 1 1700000000.0 {RECORD}",
            f"+sessions 1 2 ses_3 late 1 1 None 2 1700000000.0 {RECORD}",
        ],
    ),
}
"""Trees whose pages are lost, with the report and the changes."""


@pytest.fixture(scope="module")
def intact_file(tmp_path_factory: pytest.TempPathFactory) -> File:
    """A database with two sessions, "early" with two items and "late" with the same two and a third."""
    file = tmp_path_factory.mktemp("intact") / "convo.db"
    fill_store(f"sqlite:{file}")
    return file


@pytest.mark.parametrize(("damage", "report", "changes"), CASES.values(), ids=CASES)
def test_damaged_rows_are_repaired_or_deleted_and_every_session_is_reported(
    damage: str, report: list[str], changes: list[str], intact_file: File, tmp_path: File
) -> None:
    file, target = tmp_path / "convo.db", tmp_path / "new.db"
    shutil.copy(intact_file, file)
    with closing(sqlite3.connect(file)) as db:
        db.executescript(damage)

    result = recover_database(file, target, lambda *_: None)

    assert lines_of(result) == report
    before, after = dump(intact_file), dump(target)
    assert [*(f"-{row}" for row in sorted(before - after)), *(f"+{row}" for row in sorted(after - before))] == changes
    assert check_database(target, lambda *_: None).problems == []


@pytest.mark.parametrize("trees", LOST_PAGES)
def test_rows_of_lost_pages_are_restored_from_indexes_as_far_as_they_prove_them(
    trees: str, intact_file: File, tmp_path: File
) -> None:
    file, target = tmp_path / "convo.db", tmp_path / "new.db"
    shutil.copy(intact_file, file)
    pages = pages_of(file)
    zero_pages(file, *(number for tree in trees.split(" and ") for number in pages[tree]))

    result = recover_database(file, target, lambda *_: None)

    report, changes = LOST_PAGES[trees]
    assert lines_of(result) == report
    before, after = dump(intact_file), dump(target)
    assert [*(f"-{row}" for row in sorted(before - after)), *(f"+{row}" for row in sorted(after - before))] == changes
    assert check_database(target, lambda *_: None).problems == []


DAMAGED_ROWS = {
    "UPDATE links SET status = 'x' WHERE n = 2": (["response resp_3: its status is invalid"], []),
    "UPDATE links SET usage = '' WHERE n = 2": (["response resp_3: its usage is invalid"], []),
    "UPDATE links SET error = '[]' WHERE n = 2": (["response resp_3: its error is invalid"], []),
    "UPDATE repeated SET body = '{' WHERE body LIKE '%conv_1%'": (
        ["response resp_2: its route is not valid JSON", "response resp_3: its route is not valid JSON"],
        [],
    ),
    "UPDATE sessions SET record = '{' WHERE n = 2": (["session late: its record is not valid JSON"], []),
    "UPDATE sessions SET record = NULL WHERE n = 2": (["session late: its record is missing"], []),
    "UPDATE conversations SET metadata = '[]'": (["conversation conv_1: its metadata is invalid"], []),
    "UPDATE agent_calls SET output = '{'": (["tool call run_1 call_1: it contains invalid JSON"], []),
    "UPDATE agent_runs SET status = 'x'": ([], ["run run_1: its status is invalid"]),
    "DELETE FROM agent_documents": ([], ["run run_1: its document is missing"]),
    "UPDATE events SET body = '{'": (
        [],
        ["event of resp_2: its body is not valid JSON", "event of resp_3: its body is not valid JSON"],
    ),
    "UPDATE links SET (saw, head) = (90, 91) WHERE n = 2": ([], ["response resp_3: its input is missing"]),
}


@pytest.mark.parametrize(("damage", "rows"), DAMAGED_ROWS.items(), ids=DAMAGED_ROWS)
def test_damaged_rows_are_listed_by_the_check_and_by_the_recovery(
    damage: str, rows: tuple[list[str], list[str]], intact_file: File, tmp_path: File
) -> None:
    file, target = tmp_path / "convo.db", tmp_path / "new.db"
    shutil.copy(intact_file, file)
    with closing(sqlite3.connect(file)) as db:
        db.executescript(damage)
    checked, result = check_database(file, lambda *_: None), recover_database(file, target, lambda *_: None)

    repaired, omitted = (
        [f"{row.table} {row.key}: {row.problem}" for row in found]
        for found in (result.repaired_rows, result.omitted_rows)
    )
    assert (repaired, omitted) == rows
    assert not result.is_complete
    found = [f"{row.table} {row.key}: {row.problem}" for row in checked.damaged_rows]
    assert sorted(found) == sorted([*repaired, *omitted])
    assert [one.count for one in checked.problems if one.code == "row"] == [len(found)]
    assert check_database(target, lambda *_: None).problems == []


def test_a_session_without_its_history_is_no_repaired_row(intact_file: File, tmp_path: File) -> None:
    file, target = tmp_path / "convo.db", tmp_path / "new.db"
    shutil.copy(intact_file, file)
    with closing(sqlite3.connect(file)) as db:
        db.executescript("UPDATE sessions SET head = 99 WHERE n = 2")
    result = recover_database(file, target, lambda *_: None)

    assert (result.repaired_rows, result.omitted_rows) == ([], [])
    assert "late" not in [one.name for one in result.complete_sessions]


def test_a_recovery_counts_the_rows_and_reports_its_steps(intact_file: File, tmp_path: File) -> None:
    steps: list[tuple[str, int, int]] = []
    report = recover_database(intact_file, tmp_path / "new.db", lambda *step: steps.append(step))

    pages = steps[0][2]
    assert steps == [("pages", 0, pages), *(("rows", number, 13) for number in range(13))]
    assert pages * 4096 == intact_file.stat().st_size
    assert report.row_counts == {
        "items": 3, "nodes": 4, "sessions": 2, "links": 2, "conversations": 1, "agent_runs": 1, "events": 2,
        "files": 0,
    }  # fmt: skip


async def test_recovered_rows_are_found_by_their_ids(intact_file: File, tmp_path: File) -> None:
    file = tmp_path / "convo.db"
    shutil.copy(intact_file, file)
    with closing(sqlite3.connect(file)) as db:
        db.executescript("DELETE FROM names")
    recover_database(file, tmp_path / "new.db", lambda *_: None)
    store = open_store(f"sqlite:{tmp_path / 'new.db'}")

    assert await store.item("b") == user_message("two")
    assert [one.id for one in await store.conversation_links("conv_1")] == ["resp_2", "resp_3"]
    assert [hit.session.name for hit in await store.search_items("three")] == ["late"]
    await store.aclose()


def test_a_file_that_cannot_be_read_is_refused_with_the_option_that_names_one(tmp_path: File) -> None:
    target, hint = tmp_path / "new.db", "name the file with --store sqlite:PATH"
    missing, other = tmp_path / "missing.db", tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as db:
        db.execute("CREATE TABLE notes (words)")
    for file, message in (
        (missing, f"no database {str(missing)!r}"),
        (tmp_path, f"{tmp_path} is not a regular file"),
        (other, f"{other} contains no rows of convo; nothing was written"),
    ):
        with pytest.raises(ConvoError) as caught:
            recover_database(file, target, lambda *_: None)
        assert (caught.value.message, caught.value.hint) == (message, hint)
    assert list(tmp_path.iterdir()) == [other]
