"""The verbs that no recipe stands behind."""

import json
import sys
import textwrap

import pytest

from engram import cli
from engram.cli import bench
from engram.cli.catalog import catalog
from engram.cli.main import VERBS
from engram.core.config import controls
from engram.core.registry import registry
from tests import processes
from tests.conftest import python


def test_help_names_every_verb(engram):
    text = engram("--help").out
    assert all(f"engram {verb}" in text for verb in VERBS)
    assert engram().out.split() == text.split()
    assert engram("--version").out.startswith("engram ")


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(verb, engram):
    answer = engram(verb, "--help")
    assert answer.code == 0
    assert len(answer.out.split()) > 10


@pytest.mark.parametrize("verb", [*(verb for verb in VERBS if verb != "run"), "run --resume", "data get", "models get"])
def test_help_has_one_form(verb, engram):
    text = engram(*verb.split(), "--help").out
    assert "engram " + verb.split()[0] in text
    assert not any(sign in text for sign in ("╭", "None", "(default", "[default: ]"))


def test_help_of_a_function_names_its_arguments_and_defaults(engram):
    text = " ".join(engram("embed", "--help").out.split())
    assert "usage: engram embed MODEL FILES … [flags]" in text
    assert "--batch INT texts embedded at a time [default: 64]" in text
    assert "{auto|mean|cls|last} [default: auto]" in text


def test_list_as_json(engram):
    rows = json.loads(engram("list", "--json").out)
    assert [row["name"] for row in rows] == list(registry())
    assert all(set(row) == {"name", "title", "part", "data"} for row in rows)


@pytest.mark.parametrize("argv", [["list"], ["run", "gpt", "--help"], ["run", "rbm", "--preset", "tiny", "--help"]])
def test_lists_and_help_need_no_torch_once_the_catalog_is_cached(argv, engram):
    catalog()
    done = python(f"import sys\nfrom engram import cli\ncli.dispatch({argv!r})\nprint('torch' in sys.modules)")
    assert done.stdout.splitlines()[-1] == "False", done.stderr


def test_the_catalog_is_made_anew_when_a_source_has_changed(monkeypatch, tmp_path):
    before = catalog()
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path))  # other tests read the catalog of the suite meanwhile
    monkeypatch.setattr("engram.cli.catalog.source_signature", lambda: "another")
    monkeypatch.setattr("engram.cli.catalog.build", lambda: {"anew": {}})
    assert catalog() == {"anew": {}} == catalog()
    monkeypatch.undo()
    assert catalog() == before


def test_help_of_a_recipe_names_every_flag_with_its_bounds_and_default(engram):
    text = " ".join(engram("run", "mlp", "--preset", "tiny", "--help").out.split())
    for control in controls(registry()["mlp"].from_preset("tiny")):
        assert f"--{control['flag']}" in text or f"--no-{control['flag']}" in text
    assert "--steps INT number of training steps (at least 1) [default: 20]" in text


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize("verb", [["list"], ["data", "list"]])
def test_no_word_of_a_list_is_cut(verb, width, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    cli.dispatch(verb)
    lines = capfd.readouterr().out.splitlines()
    assert not any("…" in line for line in lines)
    assert max(map(len, lines)) <= width
    assert lines[0].startswith("name")
    if verb == ["list"]:
        shown = "".join("".join(lines).split())
        assert all(cls.title.replace(" ", "") in shown for cls in registry().values() if width < 65)


def test_an_output_that_is_no_terminal_has_a_line_for_each_row(capfd, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    cli.dispatch(["list"])
    assert len(capfd.readouterr().out.splitlines()) == 1 + len(registry())


def test_data_list_as_json(engram):
    rows = {row["name"]: row for row in json.loads(engram("data", "list", "--json").out)}
    assert rows["mnist"]["sizes"] == {"train": 55000, "valid": 5000, "test": 10000}
    assert rows["mnist"]["license"]
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
        from engram.cli.bench import Score
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
    for name in bench.benchmarks():
        module = bench.load(name)
        assert module.WORK
        assert module.UNIT.endswith(("/s", "/h")) or module.UNIT in ("BLEU", "% of analogies", "x one process")


def test_output_that_nobody_reads_to_the_end_is_no_error():
    shell = f"{sys.executable} -m engram data list --json | head -c 10"
    ended = processes.run(["bash", "-o", "pipefail", "-c", shell])
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == '[{"name": '
