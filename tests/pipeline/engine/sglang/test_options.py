"""What SGLang's parser would refuse is refused at once, in its version's own terms."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.engine.sglang.extras import checked_extras
from pipeline.engine.sglang.options import completed, known_options
from pipeline.engine.sglang.versions import VERSIONS

RECORDED = Path(__file__).parent / "recorded"
BOTH = pytest.mark.parametrize("version", VERSIONS)


@BOTH
def test_the_options_are_those_that_a_server_answered_with(version):
    answered = json.loads((RECORDED / f"{version}.json").read_text())["options"]
    assert set(known_options(version)) == {name for name in answered if name.startswith("--")}


@BOTH
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--dp", "2"], r"--dp-size is decided by the cell; set engine instead"),
        (["--dp=2"], r"--dp-size is decided by the cell"),
        (["--dp=2 "], r"--dp-size is decided by the cell"),
        (["--dp-si", "2"], r"--dp-size is decided by the cell"),
        (["--data", "2"], r"--dp-size is decided by the cell"),
        (["--data_parallel_size", "2"], r"--data-parallel-size is decided by the cell"),
        (["--tp", "2"], r"set parallelism\.tp"),
        (["--tensor", "2"], r"set parallelism\.tp"),
        (["--pp-s=2"], r"set parallelism\.tp"),
        (["--mem=0.5"], r"set engine\.mem_fraction"),
        (["--mem-fraction", "0.5"], r"set engine\.mem_fraction"),
        (["--context-len", "9"], r"set engine\.context_length"),
        (["--max-tot", "9"], r"set engine\.max_total_tokens"),
        (["--max-ru", "9"], r"set parallelism\.batch"),
        (["--load-f", "dummy"], r"set engine\.load_format"),
        (["--random", "9"], r"set sampling\.seed"),
        (["--dt", "half"], r"set target\.dtype"),
        (["--revi", "x"], r"set target\.revision"),
        (["--trust-remote-c"], r"set target\.trust_remote_code"),
        (["--ho", "0.0.0.0"], r"--host is decided by the cell"),
        (["--served", "x"], r"--served-model-name is decided"),
        (["--speculative-num-s", "3"], r"set drafter instead"),
        (["--disable-radix"], r"--disable-radix-cache is decided"),
        (["--disable-custom"], r"set verify\.allreduce"),
        (["--enforce-disable-f"], r"set verify instead"),
        (["--enable-det"], r"set verify instead"),
        (["--enable-nccl"], r"turns on NVLink multicast"),
        (["--enable_nccl_nvls"], r"turns on NVLink multicast"),
        (["--enable-symm"], r"turns on NVLink multicast"),
        (["--enable-msc"], r"uses NVLink multicast"),
        (["--flashinfer-all=auto"], r"may create NVLink multicast"),
        (["--he"], r"--help is refused: it prints"),
    ],
    ids=str,
)
def test_each_beginning_that_the_parser_completes_counts_as_the_whole(version, words, message):
    with pytest.raises(ValueError, match=rf"^engine\.extra_args: .*{message}"):
        checked_extras(["--watchdog-timeout", "9", *words], version)
    with pytest.raises(ValueError, match=message):
        checked_extras(words, version)


@BOTH
def test_every_unique_beginning_of_a_decided_option_is_refused_like_the_whole(version):
    known = known_options(version)
    tried = 0
    for whole in (
        "--dp-size",
        "--attention-backend",
        "--enable-symm-mem",
        "--max-running-requests",
    ):
        for end in range(3, len(whole)):
            begun = {known[name] for name in known if name.startswith(whole[:end])}
            if begun == {known[whole]}:
                tried += 1
                with pytest.raises(ValueError, match=f"{whole} is (decided|refused)"):
                    checked_extras([whole[:end], "1"], version)
    assert tried > 20


@BOTH
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--enable-d"], r"--enable-d: begins several options \(--enable-.*\); write the whole"),
        (["--pp", "2"], r"begins several options \(--pp-.*--pp-size\)"),
        (["--schedule", "fcfs"], r"begins several options \(.*--schedule-policy"),
        (["--"], r"begins several options"),
        (["--no-such-thing", "3"], r"--no-such-thing: SGLang 0\.5\.\d+ has no such option$"),
        (["--watchdog-timout", "3"], r"no such option; did you mean --watchdog-timeout\?"),
        (["--watchdog_timeout", "3"], r"--watchdog_timeout: SGLang writes --watchdog-timeout"),
        (["--watchdog-timeout"], r"--watchdog-timeout: expected one argument"),
        (["--watchdog-timeout", "--log-level", "info"], r"--watchdog-timeout: expected one"),
        (["--watchdog-timeout", "soon"], r"--watchdog-timeout: 'soon' is not a number"),
        (["--watchdog-timeout", "nan"], r"--watchdog-timeout: 'nan' is not a number"),
        (["--watchdog-timeout=-inf"], r"'-inf' is not a number"),
        (["--watchdog-timeout="], r"--watchdog-timeout: '' is not a number"),
        (["--chunked-prefill-size", "1.5"], r"'1\.5' is not a whole number"),
        (["--schedule-policy", "nonsense"], r"takes lpm, random, .*, not 'nonsense'"),
        (["--schedule-policy", "fcsf"], r"did you mean fcfs\?"),
        (["--json-model-override-args"], r"--json-model-override-args: expected one argument"),
        (["--watchdog-timeout", "9", "loose"], r"loose: is no option and belongs to none"),
        (["--enable-metrics-for-all-schedulers=1"], r"explicit argument '1'|decided by the cell"),
        (["--watchdog-timeout", "9", "--watchdog-timeout", "8"], r"is given twice"),
        (["--watchdog-timeout", "9", "--watchdog=8"], r"--watchdog-timeout: is given twice"),
        (["--watchdog-timeout 9"], r"is two words in one; give them apart"),
        (["--watchdog-timeout", "9", "-tp", "2"], r"-tp: use the long name of an option"),
        (["loose"], r"begin with an option"),
    ],
    ids=str,
)
def test_words_that_the_parser_would_refuse_are_refused_with_what_is_wrong(version, words, message):
    with pytest.raises(ValueError, match=message):
        checked_extras(words, version)


@BOTH
@pytest.mark.parametrize(
    "words",
    [
        ["--watchdog", "9"],
        ["--watchdog-timeout=9.5"],
        ["--chunked-prefill-size", "-1"],
        ["--schedule-policy=lpm", "--log-level", "info"],
        ["--model-loader-extra-config", '{"num_threads": 8}'],
        ["--json-model-override-args", '{"a": "--dp 2"}'],
    ],
    ids=str,
)
def test_what_the_parser_takes_is_taken(version, words):
    assert checked_extras(words, version) == tuple(words)


def test_an_option_that_one_version_has_is_refused_by_the_other():
    only = set(known_options("0.5.23")) - set(known_options("0.5.17"))
    flag = next(name for name in sorted(only) if completed(name, "0.5.23").nargs == 0)
    assert checked_extras([flag], "0.5.23") == (flag,)
    with pytest.raises(ValueError, match=r"SGLang 0\.5\.17 has no such option"):
        checked_extras([flag], "0.5.17")


@BOTH
@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("attention", "nonsense", r"^engine\.attention: .*0\.5\.\d+ takes triton, .*'nonsense'"),
        ("attention", "fa33", r"^engine\.attention: .*did you mean fa3\?"),
        ("attention", "", r"^engine\.attention: .*not ''"),
        ("attention", "--trust-remote-code", r"^engine\.attention: .*expected one argument"),
        ("page_size", 1.5, r"^engine\.page_size: .*'1\.5' is not a whole number"),
        ("extra_args", ("--grammar-backend", "xgrammar"), r"--grammar-backend is passed by this"),
        ("extra_args", ("--grammar", "xgrammar"), r"--grammar-backend is passed by this"),
    ],
)
def test_a_setting_that_the_parser_would_refuse_is_named_before_a_server_starts(
    cell, version, setting, value, message
):
    engine = replace(cell.engine, version=version, **{setting: value})
    with pytest.raises(ValueError, match=message):
        engine.check(replace(cell, engine=engine))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.0, -1.0])
@pytest.mark.parametrize(
    "setting",
    ["start_timeout_s", "request_timeout_s", "hang_timeout_s", "stop_timeout_s", "mem_fraction"],
)
def test_a_number_that_is_none_is_refused(engine, setting, value):
    with pytest.raises(ValueError, match=f"^engine.{setting}"):
        replace(engine, **{setting: value})


@pytest.mark.parametrize("setting", ["page_size", "context_length", "max_total_tokens"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1])
def test_a_count_that_is_none_is_refused(engine, setting, value):
    with pytest.raises(ValueError, match=f"^engine.{setting}"):
        replace(engine, **{setting: value})
