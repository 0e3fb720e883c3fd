import pytest

from verify.native import build


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    if build.find_compiler() is None:
        pytest.skip("no C compiler on this machine")
    return build.load(tmp_path_factory.mktemp("native"))
