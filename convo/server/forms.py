"""The form of an upload: multipart/form-data with one file and a few short fields, held in memory."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from convo.errors import RequestRefused
from convo.server import errors

FORM_MEDIA_TYPE = "multipart/form-data"
FORM_FIELDS = ("purpose", "expires_after[anchor]", "expires_after[seconds]")
FILE_FIELD = "file"
MAX_FIELD_BYTES = 1024
MAX_PARTS = len(FORM_FIELDS) + 1
MAX_PART_HEADER_BYTES = 8 * 1024
MAX_FORM_OVERHEAD_BYTES = 64 * 1024
"""Bytes of a form besides its file."""


PARSER_LOG = logging.getLogger("python_multipart")
PARSER_LOG.addHandler(logging.NullHandler())  # an invalid form is refused; without a handler its warning goes to stderr

ParseOptionsHeader = Callable[[bytes], tuple[bytes, dict[bytes, bytes]]]
"""Parses a header with options, such as `form-data; name="file"`."""


@dataclass(slots=True)
class UploadForm:
    """A parsed form; `file` is None if it has none."""

    fields: dict[str, str] = field(default_factory=dict)
    file: bytes | None = None
    file_name: str = ""
    media_type: str = ""


def parse_upload_form(content_type: bytes, raw: bytes) -> UploadForm:
    """Parse a form. Raises RequestRefused for an unknown or repeated field, and for an invalid form."""
    from python_multipart.exceptions import FormParserError
    from python_multipart.multipart import MultipartParser, parse_options_header

    media_type, options = parse_options_header(content_type)
    if media_type.decode("latin-1").lower() != FORM_MEDIA_TYPE:
        shown = content_type.decode("latin-1")
        raise RequestRefused(
            f"Unsupported content type: '{shown}'. This API method only accepts '{FORM_MEDIA_TYPE}' requests",
            code="unsupported_content_type",
        )
    collector = _FormCollector(parse_options_header)
    try:
        parser = MultipartParser(
            options.get(b"boundary", b""),
            {
                "on_part_begin": collector.begin_part,
                "on_header_field": collector.add_header_name,
                "on_header_value": collector.add_header_value,
                "on_header_end": collector.end_header,
                "on_headers_finished": collector.end_headers,
                "on_part_data": collector.add_data,
                "on_part_end": collector.end_part,
                "on_end": collector.end,
            },
        )
        parser.write(raw)
        parser.finalize()
    except FormParserError as error:
        raise _invalid_form_error(str(error)) from error
    if not collector.has_ended:
        raise _invalid_form_error("the final boundary is missing")
    return collector.form


def parse_expiry(fields: Mapping[str, str]) -> int | None:
    """Return the seconds of `expires_after`; None if it is not in the form. Raises RequestRefused."""
    anchor, seconds = fields.get("expires_after[anchor]"), fields.get("expires_after[seconds]")
    if anchor is None and seconds is None:
        return None
    if anchor != "created_at":
        raise RequestRefused(
            "Invalid 'expires_after[anchor]': only 'created_at' is supported",
            code="invalid_value",
            param="expires_after[anchor]",
        )
    if seconds is None or not (seconds.isascii() and seconds.isdigit() and len(seconds) < 12):
        raise RequestRefused(
            "Invalid 'expires_after[seconds]': expected a number of seconds",
            code="invalid_type",
            param="expires_after[seconds]",
        )
    return int(seconds)


class _FormCollector:
    """Collects the parts of a form."""

    def __init__(self, parse_options_header: ParseOptionsHeader) -> None:
        self.form, self.has_ended = UploadForm(), False
        self._parse_options_header = parse_options_header
        self._part_count = 0
        self._headers: dict[bytes, bytes] = {}
        self._header_name, self._header_value, self._data = bytearray(), bytearray(), bytearray()
        self._name = ""

    def begin_part(self) -> None:
        self._part_count += 1
        if self._part_count > MAX_PARTS:
            raise _invalid_form_error(f"it has more than {MAX_PARTS} parts")
        self._headers, self._data, self._name = {}, bytearray(), ""

    def add_header_name(self, data: bytes, start: int, end: int) -> None:
        self._header_name += data[start:end]

    def add_header_value(self, data: bytes, start: int, end: int) -> None:
        self._header_value += data[start:end]
        if len(self._header_name) + len(self._header_value) > MAX_PART_HEADER_BYTES:
            raise _invalid_form_error("the header of a part is too long")

    def end_header(self) -> None:
        self._headers[bytes(self._header_name).lower()] = bytes(self._header_value)
        self._header_name, self._header_value = bytearray(), bytearray()

    def end_headers(self) -> None:
        kind, options = self._parse_options_header(self._headers.get(b"content-disposition", b""))
        self._name = options.get(b"name", b"").decode("utf-8", "replace")
        if kind != b"form-data" or not self._name:
            raise _invalid_form_error("a part has no name")
        if self._name == FILE_FIELD:
            if self.form.file is not None:
                raise errors.repeated_parameter_error(self._name)
            self.form.file = b""
            self.form.file_name = options.get(b"filename", b"").decode("utf-8", "replace") or "upload"
            self.form.media_type = self._headers.get(b"content-type", b"").decode("latin-1")
        elif self._name not in FORM_FIELDS:
            raise errors.unknown_http_parameter_error(self._name[:64])
        elif self._name in self.form.fields:
            raise errors.repeated_parameter_error(self._name)

    def add_data(self, data: bytes, start: int, end: int) -> None:
        self._data += data[start:end]
        if self._name != FILE_FIELD and len(self._data) > MAX_FIELD_BYTES:
            raise _invalid_form_error(f"'{self._name}' is longer than {MAX_FIELD_BYTES} bytes")

    def end_part(self) -> None:
        if self._name == FILE_FIELD:
            self.form.file = bytes(self._data)
        else:
            self.form.fields[self._name] = self._data.decode("utf-8", "replace")

    def end(self) -> None:
        self.has_ended = True


def _invalid_form_error(reason: str) -> RequestRefused:
    return RequestRefused(f"We could not parse the form in the body of your request: {reason}", code="invalid_form")
