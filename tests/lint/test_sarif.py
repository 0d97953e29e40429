"""SARIF output is checked against a copy of the constraints in its standard."""

from dataclasses import replace
from typing import Any

import pytest

from convo.lint.model import lint_view_of_file
from convo.lint.report import build_lint_report, build_sarif, find_item_lines
from convo.lint.rules import LINT_RULES
from convo.report import to_json
from tests.lint.lint_views import CHAIN, OPENAI, answer, call, make_lint_view, output, sealed_reasoning, turn, user

PAGES = {rule.code: f"# {rule.code}" for rule in LINT_RULES}

RULE_CODES = [*PAGES]

TEXT = '[\n {"role": "user", "content": "hi"},\n\n {"type": "message", "role": "user"}, {"id": 1}\n]'

MESSAGE = {"text": str}
HELP = {"text": str, "markdown": str}
LEVELS = ("none", "note", "warning", "error")
RULE = {"id": str, "shortDescription": MESSAGE, "help": HELP, "defaultConfiguration": {"level": LEVELS}}
PLACE = {
    "physicalLocation": {"artifactLocation": {"uri": str}, "region": {"startLine": int}},
    "logicalLocations": [{"fullyQualifiedName": str}],
}
LOG: dict[str, Any] = {
    "$schema": str,
    "version": ("2.1.0",),
    "runs": [
        {
            "tool": {"driver": {"name": str, "version": str, "rules": [RULE]}},
            "columnKind": ("utf16CodeUnits", "unicodeCodePoints"),
            "invocations": [
                {
                    "executionSuccessful": bool,
                    "toolExecutionNotifications": [
                        {"level": LEVELS, "message": MESSAGE, "associatedRule": {"id": str, "index": int}}
                    ],
                }
            ],
            "results": [
                {"ruleId": str, "ruleIndex": int, "level": LEVELS, "message": MESSAGE, "locations": [PLACE]},
            ],
        }
    ],
}
"""SARIF 2.1.0, sections 3.13 to 3.58, for the properties in use: a tuple has the allowed values."""

OPTIONAL = {"physicalLocation", "region"}


def fits(value: Any, shape: Any, path: str = "$") -> None:
    match shape:
        case dict():
            assert set(value) | OPTIONAL >= set(shape), path
            assert set(value) <= set(shape), path
            for name in value:
                fits(value[name], shape[name], f"{path}.{name}")
        case tuple():
            assert value in shape, path
        case [one]:
            assert isinstance(value, list), path
            for index, inner in enumerate(value):
                fits(inner, one, f"{path}[{index}]")
        case _:
            assert type(value) is shape, path


def test_findings_of_a_file_have_its_name_line_and_json_path() -> None:
    broken = [user(), call(), sealed_reasoning(), answer(id="msg_1"), {"type": "message", "role": "user"}]
    found = build_lint_report("a file.json", lint_view_of_file(broken), file="a file.json", item_lines=(1, 2, 3, 4, 9))
    log = build_sarif([found], PAGES, "1.0")
    fits(log, LOG)
    (run,) = log["runs"]
    assert [(one["ruleId"], one["level"]) for one in run["results"]] == [
        ("call-without-output", "error"),
        ("malformed-item", "error"),
    ]
    (location,) = run["results"][1]["locations"]
    assert location["physicalLocation"] == {"artifactLocation": {"uri": "a%20file.json"}, "region": {"startLine": 9}}
    assert location["logicalLocations"] == [{"fullyQualifiedName": "a file.json[4].content"}]
    (note,) = run["invocations"][0]["toolExecutionNotifications"]
    assert note["associatedRule"]["id"] == "sealed-elsewhere"


def test_a_log_has_the_version_the_rules_and_what_was_not_checked() -> None:
    report = build_lint_report(
        "/x/a b.json", lint_view_of_file([user(), call(), sealed_reasoning()]), file="/x/a b.json"
    )
    log = build_sarif([report, build_lint_report("monads", lint_view_of_file([user()]))], PAGES, "1.2.3")
    (run,) = log["runs"]
    rules = run["tool"]["driver"].pop("rules")
    assert rules[0] == {
        "id": "store-false-in-chain",
        "shortDescription": {"text": "a chain continues from a response that was not stored (store=false)"},
        "help": {"text": "# store-false-in-chain", "markdown": "# store-false-in-chain"},
        "defaultConfiguration": {"level": "error"},
    }
    assert [rule["id"] for rule in rules] == [rule.code for rule in LINT_RULES]
    assert log == {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": {"name": "convo", "version": "1.2.3"}},
                "columnKind": "unicodeCodePoints",
                "invocations": [
                    {
                        "executionSuccessful": True,
                        "toolExecutionNotifications": [
                            {
                                "level": "note",
                                "message": {
                                    "text": "/x/a b.json: 1 encrypted item not checked: its origin or the next model "
                                    "is unknown"
                                },
                                "associatedRule": {
                                    "id": "sealed-elsewhere",
                                    "index": RULE_CODES.index("sealed-elsewhere"),
                                },
                            }
                        ],
                    }
                ],
                "results": [
                    {
                        "ruleId": "call-without-output",
                        "ruleIndex": RULE_CODES.index("call-without-output"),
                        "level": "error",
                        "message": {"text": "function call c1 has no output"},
                        "locations": [
                            {
                                "physicalLocation": {"artifactLocation": {"uri": "file:///x/a%20b.json"}},
                                "logicalLocations": [{"fullyQualifiedName": "/x/a b.json[1].call_id"}],
                            }
                        ],
                    },
                    {
                        "ruleId": "reasoning-without-follower",
                        "ruleIndex": RULE_CODES.index("reasoning-without-follower"),
                        "level": "error",
                        "message": {"text": "reasoning rs_1 is not followed by an item of the model"},
                        "locations": [
                            {
                                "physicalLocation": {"artifactLocation": {"uri": "file:///x/a%20b.json"}},
                                "logicalLocations": [{"fullyQualifiedName": "/x/a b.json[2]"}],
                            }
                        ],
                    },
                ],
            }
        ],
    }


def test_a_result_refers_to_its_rule() -> None:
    log = build_sarif([build_lint_report("monads", lint_view_of_file([user(), output()]))], PAGES, "1.0")
    fits(log, LOG)
    (run,) = log["runs"]
    (result,) = run["results"]
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"] == "output-without-call"


def test_a_clean_history_has_no_results_and_all_rules() -> None:
    log = build_sarif([build_lint_report("monads", lint_view_of_file([user()]))], PAGES, "1.0")
    fits(log, LOG)
    (run,) = log["runs"]
    assert (run["results"], len(run["tool"]["driver"]["rules"])) == ([], len(LINT_RULES))


@pytest.mark.parametrize(
    ("text", "field", "found"),
    [
        (TEXT, "", (2, 4, 4)),
        ("[]", "", ()),
        ("  [ ] ", "", ()),
        ('{"a": 1}\n{"b": [2]}\n\n{"c": 3}\n', "", (1, 2, 4)),
        (
            '{"model": "m", "x": {"input": []},\n"input"\n: [\n{"a": 1},{"b": "]\\n"},\n{"c": 1}], "y": 2}',
            "input",
            (4, 4, 5),
        ),
        ('{"model":"m","input":[{"a":1},{"b":2}]}', "input", (1, 1)),
        ('{"a":\n1}', "input", ()),
        ('[1,\n"a",\nnull]', "", (1, 2, 3)),
    ],
)
def test_the_line_of_each_item(text: str, field: str, found: tuple[int, ...]) -> None:
    assert find_item_lines(text, field) == found


def test_a_report_as_json_has_the_place_and_the_item_of_each_finding() -> None:
    broken = [user(), call(id="fc_1"), sealed_reasoning(), answer(id="msg_1"), {"type": "message", "role": "user"}]
    report = build_lint_report(
        "a file.json", lint_view_of_file(broken), file="a file.json", item_lines=(1, 2), node_keys=("k0", "k1")
    )
    found = to_json(report.summarize())
    assert {name: value for name, value in found.items() if name not in ("findings", "unjudged")} == {
        "handle": "a file.json",
        "strategy": "replay",
        "endpoint": None,
        "items": 5,
        "errors": 2,
        "warnings": 0,
    }
    assert found["unjudged"] == [
        {
            "code": "sealed-elsewhere",
            "message": "1 encrypted item not checked: its origin or the next model is unknown",
        }
    ]
    assert found["findings"] == [
        {
            "code": "call-without-output",
            "severity": "error",
            "message": "function call c1 has no output",
            "path": "$[1].call_id",
            "index": 1,
            "line": 2,
            "key": "k1",
            "type": "function_call",
            "id": "fc_1",
            "response_id": None,
            "related": [],
        },
        {
            "code": "malformed-item",
            "severity": "error",
            "message": "message has no content",
            "path": "$[4].content",
            "index": 4,
            "line": None,
            "key": None,
            "type": "message",
            "id": None,
            "response_id": None,
            "related": [],
        },
    ]


def test_a_finding_about_a_response_and_one_about_several_items_name_them() -> None:
    turns = turn([user()], [answer(id="m")]), turn([user()], [answer(id="m")], is_stored=False)
    view = make_lint_view(CHAIN, *turns, unconfirmed=[user(), answer(id="m")], scope=OPENAI)
    view = replace(view, exposed_secrets=((".context.key", "an API key"),))
    paths = [f"$.input[{index}]" for index in range(6)]
    report = build_lint_report("monads", view, item_paths=paths, node_keys=[f"k{index}" for index in range(6)])
    found = to_json(report.summarize())
    assert (found["strategy"], found["endpoint"], found["errors"], found["warnings"]) == (
        *("chain", "https://api.openai.com/v1"),
        *(2, 1),
    )
    assert [
        (one["code"], one["severity"], one["path"], one["index"], one["line"], one["key"]) for one in found["findings"]
    ] == [
        ("store-false-in-chain", "error", "$.input[3]", 3, None, "k3"),
        ("duplicate-item-id", "error", "$.input[5].id", 5, None, "k5"),
        ("secret-in-state", "warning", "$.context.key", None, None, None),
    ]
    assert [(one["type"], one["id"], one["response_id"], one["related"]) for one in found["findings"]] == [
        ("message", "m", "resp_2", []),
        ("message", "m", None, ["$.input[1]"]),
        (None, None, None, []),
    ]
