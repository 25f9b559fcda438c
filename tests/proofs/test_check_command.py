"""`tinycb check` from outside: exit codes, words, pictures, files. Misbehaviour is in `test_worker.py`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.proofs import faulty_kernels
from tinycb.cli import main

SUBJECTS = Path(faulty_kernels.__file__)
ONE = ("--only", "agrees_with_one_request_alone", "--examples", "10")


@pytest.fixture
def check(tmp_path, monkeypatch, capsys):
    """Run `tinycb check …` in an empty folder: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(["check", *map(str, arguments)])
        return code, *capsys.readouterr()

    return run


def test_a_right_kernel_holds_whatever_is_asked_of_it(check):
    flags = ("--examples", "3", "--dtype", "bf16,float32", "--heads", "8:2,3:1", "--seed", "3", "--exact")
    code, out, err = check("paged", f"{SUBJECTS}:paged.right", *flags)
    assert code == 0, out + err
    assert "16 hold, 0 fail" in out
    assert out.count("✓ holds") == 16
    assert "bfloat16 float32" in out.splitlines()[0]
    assert "\x1b" not in out


def test_a_wrong_kernel_fails_in_words_and_in_a_picture_and_is_replayed(check, tmp_path):
    only = ("--only", "a_query_sees_exactly_its_own_past")
    code, out, err = check("paged", f"{SUBJECTS}:paged.sees_the_next_key", *only)
    assert (code, err) == (1, "")
    assert "saw 1 key that it should not see" in " ".join(out.split())
    assert "seen too  key 1 = block_table[0, 0] → block 0, offset 1 (slot 1)" in out
    assert "Traceback" not in out
    wide = [line for line in out.splitlines() if len(line) > 80]
    assert all("tinycb-failures" in line or str(SUBJECTS) in line for line in wide)

    file = tmp_path / "tinycb-failures" / "paged-a_query_sees_exactly_its_own_past.json"
    assert json.loads(file.read_text())["example"]["type"] == "RaggedBatch"
    assert check("--replay", file)[0] == 1
    test = file.with_name("test_paged_a_query_sees_exactly_its_own_past.py")
    assert len(test.read_text().splitlines()) == 10
    pytest_run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(test)]
    failed = subprocess.run(pytest_run, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert failed.returncode == 1
    assert "saw 1 key that it should not see" in failed.stdout

    repaired = json.loads(file.read_text()) | {"subject": f"{SUBJECTS}:paged.right"}
    file.write_text(json.dumps(repaired))
    code, out, _ = check("--replay", file)
    assert (code, out.split()[:2]) == (0, ["✓", "holds"])
    assert subprocess.run(pytest_run, cwd=tmp_path, capture_output=True, check=False).returncode == 0


def test_a_kernel_that_ends_the_process_fails_in_words(check):
    code, out, err = check("paged", f"{SUBJECTS}:paged.crashes", *ONE)
    assert (code, err) == (1, "")
    assert "the process died with SIGSEGV in faulty_kernels.py, line" in " ".join(out.split())
    assert "  | 2 requests, " in out
    assert "Traceback" not in out


def test_a_write_in_the_wrong_place_is_shown(check):
    only = ("--only", "minus_one_slots_are_skipped")
    code, out, _ = check("write_kv", f"{SUBJECTS}:write.writes_minus_one", *only)
    assert code == 1
    assert "no token belongs there" in " ".join(out.split())
    assert "slot_mapping, token→slot: 0 skipped" in out


def test_schedulers_are_checked_too_and_leave_a_trace(check, tmp_path):
    assert check("scheduler", "chunked", "--examples", "5")[0] == 0
    code, out, _ = check("chunked", "continuous", "--only", "within_its_budget")
    assert code == 1
    trace = tmp_path / "tinycb-failures" / "chunked-within_its_budget.jsonl"
    assert trace.exists()
    assert f"tinycb replay {trace.relative_to(tmp_path)}" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("paged", "no_such_module:f"), "cannot import no_such_module: ModuleNotFoundError"),
        (("paged", "no_such_file.py:f"), "there is no file no_such_file.py"),
        (("paged", f"{SUBJECTS}:paged.rigt"), "has no paged.rigt; did you mean right?"),
        (("paged", f"{SUBJECTS}:not_callable"), "is 3, which cannot be called"),
        (("paged", "just_a_name"), "write module:name"),
        (("pagd", "a:b"), "there are no theorems about 'pagd'"),
        (("paged",), "needs a kind and a subject"),
        (("paged", "a:b", "--only", "nothing"), "there is no theorem 'nothing' about paged"),
        (("paged", "a:b", "--dtype", "int8"), "--dtype must be among"),
        (("paged", "a:b", "--heads", "7:2"), "--heads must be"),
        (("paged", "a:b", "--examples", "0"), "--examples must be more than 0"),
        (("--replay", "nothing.json"), "cannot read nothing.json"),
        (("--replay", str(SUBJECTS)), "cannot replay"),
    ],
)
def test_what_cannot_be_run_is_one_line_and_exit_code_2(check, arguments, words):
    code, out, err = check(*arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1


def test_out_of_time_is_not_a_proof(check):
    code, out, _ = check("varlen", f"{SUBJECTS}:ours.torch_varlen", "--seconds", "0.001")
    assert code == 2
    assert "not tried" in out


def test_ascii_where_that_is_all_there_is_and_nothing_that_the_kernel_prints(tmp_path):
    command = [sys.executable, "-m", "tinycb", "check", "paged", f"{SUBJECTS}:paged.prints", *ONE]
    settings = os.environ | {"PYTHONIOENCODING": "ascii", "NO_COLOR": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=settings, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "+ holds" in done.stdout
    assert "noise" not in done.stdout
