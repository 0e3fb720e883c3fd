"""A user's file is read as it was meant, or refused with what was found in it."""

import codecs
import gzip
import json

import pytest

from pipeline.workload.files import read_rows

ROWS = [{"prompt": "Café?"}, {"prompt": "Two"}]
LINES = "\r\n".join(json.dumps(row, ensure_ascii=False) for row in ROWS) + "\r\n"


def rows(path):
    return [row for _, row in read_rows(path)]


@pytest.fixture
def write(tmp_path):
    def write(content):
        path = tmp_path / "rows.jsonl"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.mark.parametrize(
    "content",
    [
        LINES,
        LINES.replace("\r\n", "\n\n \n"),
        codecs.BOM_UTF8 + LINES.encode(),
        codecs.BOM_UTF16_LE + LINES.encode("utf-16-le"),
        codecs.BOM_UTF16_BE + LINES.encode("utf-16-be"),
        codecs.BOM_UTF32_LE + LINES.encode("utf-32-le"),
        json.dumps(ROWS),
        json.dumps(ROWS, indent=2),
        "\n" + json.dumps(ROWS, indent=1).replace("\n", "\r\n"),
    ],
)
def test_encodings_line_ends_and_arrays_hold_the_same_rows(write, content):
    assert rows(write(content)) == ROWS


def test_one_object_over_several_lines_is_one_row(write):
    assert rows(write(json.dumps(ROWS[0], indent=2))) == ROWS[:1]


TURNS = [{"role": "user", "content": "Hi"}]


def test_a_list_of_messages_is_a_row_on_a_line_or_as_the_whole_file(write):
    line = json.dumps(TURNS)
    assert rows(write(f"{line}\n{line}\n")) == [{"messages": TURNS}] * 2
    assert rows(write(line)) == [{"messages": TURNS}]
    assert rows(write(json.dumps(TURNS, indent=1))) == [{"messages": TURNS}]
    assert rows(write(json.dumps([TURNS, TURNS], indent=1))) == [{"messages": TURNS}] * 2


def test_a_separator_inside_a_text_ends_no_line(write):
    assert rows(write('{"prompt": "a\u2028b\x85c"}')) == [{"prompt": "a\u2028b\x85c"}]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (gzip.compress(LINES.encode(), mtime=0), "gzip-compressed; unpack it first"),
        (b"PK\x03\x04...", "a zip archive"),
        (b"PAR1....", "a Parquet file"),
        (LINES.encode("utf-16-le"), r"rows.jsonl:1: a NUL byte: this is UTF-16 without its mark"),
        (b'{"prompt": "a"}\n{"prompt": "b\x00"}\n', r"rows.jsonl:2: a NUL byte"),
        (codecs.BOM_UTF16_LE + b"a", "marked as UTF-16 and not readable"),
        ('{"prompt": "a"},\n{"prompt": "b"}\n', r"rows.jsonl:1: .*remove the comma at its end"),
        ('{\n"prompt": "a"\n}\n{\n"prompt": "b"\n}', r":1: .*object over several lines: .*jq -c"),
        ('[{"prompt": "a"},\n{"prompt": ]', r"rows.jsonl: not JSON"),
        ('{"prompt": "first one", "prompt": "second"}', r':1: "prompt" stands twice in one object'),
        ('{"messages": [{"role": "user", "role": "x"}]}', r':1: "role" stands twice'),
        ('{"prompt": "a", "x": ' + "[" * 100_000 + "]" * 100_000 + "}", r":1: nested more than"),
        ('{"prompt": "a", "x": ' + '{"y":' * 500 + "1" + "}" * 501, r":1: nested more than"),
        ("[" * 100_000 + "]" * 100_000, "nested more than"),
        ("3", r"rows.jsonl:1: not a JSON object: a int"),
        ('["a", "b"]\n["c"]', r"rows.jsonl:1: not a JSON object: a list, but not of messages"),
        (b'{"prompt": "\xff\xfe"}', r"rows.jsonl:1: not JSON"),
    ],
)
def test_what_cannot_be_read_is_refused_with_what_it_is(write, content, message):
    with pytest.raises(ValueError, match=message) as refusal:
        rows(write(content))
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 400
