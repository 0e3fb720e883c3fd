"""The names that we use against what each version answered: a new recording says what changed."""

import json
from pathlib import Path

import pytest

from pipeline.engine.sglang.versions import VERSIONS, lacking

RECORDED = sorted((Path(__file__).parent / "recorded").glob("*.json"))


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_a_recorded_version_has_every_name_that_we_use(path):
    recorded = json.loads(path.read_text())
    assert lacking(recorded) == [], f"SGLang {recorded['version']} changed names"
    assert recorded["version"] == path.stem


def test_every_supported_version_is_recorded():
    assert {path.stem for path in RECORDED} == set(VERSIONS)


def test_a_changed_name_is_named_with_its_place():
    recorded = json.loads(RECORDED[0].read_text())
    recorded["options"].remove("--page-size")
    recorded["speculative_meta_info"].remove("spec_verify_ct")
    assert lacking(recorded) == ["options: --page-size", "speculative_meta_info: spec_verify_ct"]
