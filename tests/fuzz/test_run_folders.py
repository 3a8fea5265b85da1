"""Run folders of others: every file damaged, or rewritten with a valid hash around wrong values."""

import contextlib
import hashlib
import itertools
import json
import os
import shutil

import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st

import engram
from engram.core.errors import EngramError
from engram.core.files import dump_hashed_json
from engram.lab.run_store import RunStore
from engram.plots.report import headline
from engram.training.run import Run
from engram.training.run_folder import RunFolder
from tests.conftest import tiny
from tests.fuzz.hostile import anything, changed, damaged, written
from tests.fuzz.law import lawful, trials

numbers = itertools.count()
RECIPES = ("mlp", "gpt")
FILES = ("recipe.json", "config.json", "metrics.jsonl", "model.safetensors", "tokenizer.json")


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A finished run of each recipe."""
    root = tmp_path_factory.mktemp("good")
    for name in RECIPES:
        tiny(name, root / name, steps=4, eval_every=2)
    return root


@pytest.fixture
def copied(good, tmp_path):
    """A copy of a run to be spoilt, alone in a folder of runs."""

    def copy(name):
        root = tmp_path / str(next(numbers))
        shutil.copytree(good / name, root / "run", copy_function=os.link)
        return root / "run"

    return copy


def put(path, content):
    path.unlink(missing_ok=True)  # the other name of a good file
    path.write_bytes(content)


def newest(folder):
    return sorted((folder / "state").glob("[0-9]*"))[-1]


def opened(folder, said):
    """Everything that opens a run, each by the law: it may only write inside."""
    store = RunStore(folder.parent)
    for look in (
        lambda: engram.load(folder),
        lambda: Run.open(folder),
        lambda: headline(RunFolder.open(folder).metrics()),
        lambda: store.details("run"),
        lambda: store.finished(store.folder("run")),
        lambda: b"".join(store.stream_zip("run")),
        lambda: resumed(folder),
    ):
        with lawful(folder, said):
            look()
    with lawful(folder, said):
        json.dumps([store.names(), store.summary("run"), store.lines("run")])


def resumed(folder, steps=0):
    run = None
    try:
        run = Run.resume(folder)
        for _ in range(steps):
            run.train_step()
    finally:
        if run:
            run.folder.release()


@trials(15)
@given(st.data(), st.sampled_from(RECIPES), st.sampled_from(FILES))
def test_a_file_with_damage(copied, data, name, file):
    folder = copied(name)
    if (folder / file).exists():
        content = data.draw(damaged((folder / file).read_bytes()))
        put(folder / file, content)
        opened(folder, (name, file, content))


@trials(25)
@given(st.data(), st.sampled_from(RECIPES), st.sampled_from(("recipe.json", "config.json")))
def test_values_that_do_not_fit(copied, data, name, file):
    folder = copied(name)
    value = data.draw(changed(json.loads((folder / file).read_bytes())))
    put(folder / file, written(value))
    opened(folder, (name, file, value))


@trials(15)
@given(
    st.lists(
        anything | st.fixed_dictionaries({"step": anything, "seconds": anything, "test_loss": anything}), max_size=4
    )
)
def test_measurements_of_anything(copied, lines):
    folder = copied("mlp")
    put(folder / "metrics.jsonl", b"".join(written(line) + b"\n" for line in lines))
    opened(folder, lines)


@trials(25)
@given(st.data(), st.sampled_from(RECIPES))
def test_a_checkpoint_that_is_sealed_around_other_values(copied, data, name):
    folder = copied(name)
    path = newest(folder) / "checkpoint.json"
    value = data.draw(changed(json.loads(path.read_bytes())["content"]))
    with contextlib.suppress(ValueError, RecursionError):  # what this very test cannot read
        put(path, dump_hashed_json(json.loads(written(value))) if data.draw(st.booleans()) else written(value))
    opened(folder, (name, value))
    with lawful(folder, (name, value)):
        resumed(folder, steps=2)


def test_a_model_is_no_larger_than_its_weights(copied):
    folder = copied("gpt")
    config = json.loads((folder / "config.json").read_bytes())
    put(folder / "config.json", written(config | {"layers": 10**9}))
    for look in (engram.load, Run.open):
        with lawful(folder), pytest.raises(EngramError, match="far larger than its weights"):
            look(folder)


tensors = st.builds(
    lambda shape, kind: torch.zeros(shape, dtype=kind),
    st.lists(st.integers(0, 5), max_size=3),
    st.sampled_from(
        (torch.float32, torch.float16, torch.bool, torch.int64, torch.uint8, torch.bfloat16, torch.complex64)
    ),
)


@trials(25)
@given(st.data(), st.sampled_from(RECIPES), st.sampled_from(("model", "learner")))
def test_a_checkpoint_that_is_sealed_around_other_tensors(copied, data, name, which):
    folder = copied(name)
    place = newest(folder)
    held = safetensors.torch.load((place / f"{which}.safetensors").read_bytes())
    for key in data.draw(st.lists(st.sampled_from(sorted(held)), max_size=2)):
        held[key] = data.draw(tensors)
    held |= data.draw(st.dictionaries(st.text(max_size=5), tensors, max_size=1))
    content = safetensors.torch.save(held)
    if data.draw(st.booleans()):
        content = data.draw(damaged(content))
    put(place / f"{which}.safetensors", content)
    about = json.loads((place / "checkpoint.json").read_bytes())["content"]
    about["sha256"][f"{which}.safetensors"] = hashlib.sha256(content).hexdigest()
    put(place / "checkpoint.json", dump_hashed_json(about))
    if which == "model":
        put(folder / "model.safetensors", content)
    opened(folder, (name, which, content))
    with lawful(folder, (name, which, content)):
        resumed(folder, steps=2)


NAMES = ("000000000", "9" * 30, "9" * 5000, "-1", "٣", "²", "00000000²", "x", "1e9", "000000004.partial", " 7", "..")


@trials(15)
@given(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3), st.booleans())
def test_checkpoints_of_strange_names(copied, names, full):
    folder = copied("mlp")
    for name in names:
        with contextlib.suppress(OSError):
            if full:
                shutil.copytree(newest(folder), folder / "state" / name)
            else:
                (folder / "state" / name).mkdir()
    opened(folder, (names, full))


LINKED = (
    "recipe.json", "config.json", "metrics.jsonl", "model.safetensors", "state", "samples", ".lock", "report.html",
    "state/000000004", "state/000000004/checkpoint.json", "state/000000004/model.safetensors",
    "state/000000006.partial",
)  # fmt: skip


@pytest.mark.parametrize("file", LINKED)
def test_a_link_out_of_the_folder_is_refused_and_what_it_leads_to_stays(copied, file, tmp_path):
    folder = copied("mlp")
    outside = tmp_path / "outside"
    if (folder / file).exists():
        (folder / file).rename(outside)
    else:
        outside.mkdir()
        (outside / "a").write_text("mine")
    before = sorted((path, path.is_file() and path.read_bytes()) for path in [outside, *outside.rglob("*")])
    (folder / file).symlink_to(outside)
    with pytest.raises(EngramError, match="leads out of"):
        RunFolder.open(folder)
    opened(folder, file)
    assert sorted((path, path.is_file() and path.read_bytes()) for path in [outside, *outside.rglob("*")]) == before


@pytest.mark.parametrize("file", ["recipe.json", "config.json", "metrics.jsonl", "model.safetensors", "state", ".lock"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink(path, path)])
def test_what_is_called_like_a_file_and_is_none(copied, file, make):
    folder = copied("mlp")
    if (folder / file).is_dir():
        shutil.rmtree(folder / file)
    else:
        (folder / file).unlink(missing_ok=True)
    make(folder / file)
    opened(folder, file)
