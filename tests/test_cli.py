"""The verbs that no recipe stands behind."""

import json
import sys
import textwrap

import pytest

from engram import bench, cli
from engram.core.registry import catalogue
from tests import processes


def test_help_names_every_verb(engram):
    text = engram("--help").out
    assert all(f"engram {verb}" in text for verb in cli.VERBS)
    assert engram().out.split() == text.split()
    assert engram("--version").out.startswith("engram ")


@pytest.mark.parametrize("verb", cli.VERBS)
def test_every_verb_explains_itself(verb, engram):
    answer = engram(verb, "--help")
    assert answer.code == 0
    assert len(answer.out.split()) > 10


def test_list_as_json(engram):
    rows = json.loads(engram("list", "--json").out)
    assert [row["name"] for row in rows] == list(catalogue())
    assert all(set(row) == {"name", "title", "kind", "data", "notes"} for row in rows)


def test_data_list_as_json(engram):
    rows = {row["name"]: row for row in json.loads(engram("data", "list", "--json").out)}
    assert rows["mnist"]["sizes"] == {"train": 55000, "valid": 5000, "test": 10000}
    assert rows["mnist"]["licence"]
    assert len(rows["mnist"]["sha256"]) == 64
    assert rows["points"]["here"] is True


def test_bench_takes_turns_and_compares_with_the_first(engram, tmp_path, monkeypatch):
    (tmp_path / "sleep.py").write_text(
        textwrap.dedent("""
        import time
        WORK, UNIT, turns = "to sleep", "naps/s", []
        def sleeper(name, seconds):
            def ready():
                time.sleep(0.05)   # not timed
                def work():
                    turns.append(name)
                    time.sleep(seconds)
                    return 2
                return work
            return ready
        def contestants():
            return {"slow": sleeper("slow", 0.04), "quick": sleeper("quick", 0.02)}
        """)
    )
    monkeypatch.setattr(bench, "folder", lambda: tmp_path)
    result = json.loads(engram("bench", "sleep", "--rounds", 2, "--json").out)
    assert (result["work"], result["unit"]) == ("to sleep", "naps/s")
    slow, quick = result["contestants"]
    assert (slow["name"], slow["ratio"]) == ("slow", 1)
    assert quick["ratio"] == quick["rate"] / slow["rate"]
    assert 25 < slow["rate"] <= 50 < quick["rate"] <= 100
    assert "sleep" in engram("bench").out


def test_bench_takes_a_score_as_it_is_and_as_many_rounds_as_the_benchmark_says(engram, tmp_path, monkeypatch):
    (tmp_path / "marks.py").write_text(
        textwrap.dedent("""
        from engram.bench import Score
        WORK, UNIT, ROUNDS, turns = "to be marked", "BLEU", 2, []
        def pupil(first):
            def ready():
                turns.append(first)
                return lambda: Score(first + len(turns), f"at turn {len(turns)}")
            return ready
        def contestants():
            return {"weak": pupil(1.0), "strong": pupil(6.0)}
        """)
    )
    monkeypatch.setattr(bench, "folder", lambda: tmp_path)
    rates = [c["rate"] for c in json.loads(engram("bench", "marks", "--json").out)["contestants"]]
    assert rates == [4.0, 10.0]  # the second of two rounds
    rates = [c["rate"] for c in json.loads(engram("bench", "marks", "--rounds", 1, "--json").out)["contestants"]]
    assert rates == [2.0, 8.0]
    assert "at turn 2" in engram("bench", "marks", "--rounds", 1).out


def test_every_benchmark_says_what_its_work_is():
    for name in bench.names():
        module = bench.load(name)
        assert module.WORK
        assert module.UNIT.endswith(("/s", "/h")) or module.UNIT in ("BLEU", "% of analogies", "x one process")


def test_output_that_nobody_reads_to_the_end_is_no_error():
    shell = f"{sys.executable} -m engram data list --json | head -c 10"
    ended = processes.run(["bash", "-o", "pipefail", "-c", shell])
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == '[{"name": '
