"""Whatever a library's error says, a reason is one line and never empty."""

import pytest

from pipeline.config.messages import first_line, folded, one_line

PAGE = "\nnot found\n\n  see   the manual\n"


def test_an_error_of_many_lines_is_one_line_with_its_type():
    assert one_line(KeyError("a\nb")) == "KeyError: 'a\\nb'"
    assert one_line(ValueError(PAGE)) == "ValueError: not found see the manual"
    assert folded(PAGE) == "not found see the manual"
    assert first_line(ValueError(PAGE)) == "not found"


@pytest.mark.parametrize("said", ["", "\n"])
def test_an_error_that_says_nothing_is_called_by_its_type(said):
    assert one_line(ConnectionResetError(said)) == "ConnectionResetError"
    assert first_line(ConnectionResetError(said)) == "ConnectionResetError"
