"""The route table is consistent, and agrees with the validation of bodies and queries."""

import pytest

from convo.errors import RequestRefused
from convo.models.request_fields import INCLUDABLE, REQUEST_FIELDS
from convo.responses_api.validation import validate_value
from convo.server import http
from convo.server.http import INCLUDE_PARAMETER, LIST_PARAMETERS
from convo.server.routes import API_ROUTES, group_by_path


def test_a_method_of_a_path_has_one_route() -> None:
    rows = [(route.method, route.path) for route in API_ROUTES]
    assert sorted(set(rows)) == sorted(rows)
    assert [path for path, _ in group_by_path()] == list(dict.fromkeys(path for _, path in rows))


def test_a_fixed_path_is_matched_before_a_variable_one() -> None:
    paths = [path for path, _ in group_by_path()]
    assert paths.index("/v1/responses/compact") < paths.index("/v1/responses/{response_id}")
    assert paths.index("/v1/models") < paths.index("/v1/models/{model:path}")


def test_include_accepts_the_same_values_in_a_body_and_in_a_query() -> None:
    for value in INCLUDABLE:
        validate_value("include", [value], REQUEST_FIELDS["include"].schema)
        assert http.parse_query(f"include={value}".encode(), [INCLUDE_PARAMETER]) == {"include": [value]}
    for parse in (
        lambda: validate_value("include", ["everything"], REQUEST_FIELDS["include"].schema),
        lambda: http.parse_query(b"include=everything", [INCLUDE_PARAMETER]),
    ):
        with pytest.raises(RequestRefused) as caught:
            parse()
        assert all(value in caught.value.message for value in INCLUDABLE)


VALID_QUERIES = [
    (b"", {}),
    (b"limit=5&order=asc", {"limit": 5, "order": "asc"}),
    (b"after=msg_1&before=msg%202", {"after": "msg_1", "before": "msg 2"}),
    (b"after=", {"after": ""}),
    (b"include=reasoning.encrypted_content", {"include": ["reasoning.encrypted_content"]}),
    (
        b"include[]=reasoning.encrypted_content&include%5B%5D=message.output_text.logprobs",
        {"include": ["reasoning.encrypted_content", "message.output_text.logprobs"]},
    ),
]


@pytest.mark.parametrize(("raw", "expected"), VALID_QUERIES)
def test_a_query_is_read_by_the_parameter_names_of_its_route(raw: bytes, expected: dict[str, object]) -> None:
    assert http.parse_query(raw, LIST_PARAMETERS) == expected


@pytest.mark.parametrize(
    ("raw", "param"),
    [
        (b"limit=1&limit=2", "limit"),
        (b"limit[]=1", "limit[]"),
        (b"limit=", "limit"),
        (b"limit=1.5", "limit"),
        (b"limit=%EF%BC%91", "limit"),
        (b"limit=99999999999999999999", "limit"),
        (b"include=everything", "include"),
        (b"x", "x"),
        (b"%ff=1", "\ufffd"),
    ],
)
def test_an_invalid_query_value_is_refused_by_name(raw: bytes, param: str) -> None:
    with pytest.raises(RequestRefused) as caught:
        http.parse_query(raw, LIST_PARAMETERS)
    assert caught.value.param == param
