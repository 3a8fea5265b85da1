"""A hundred wrong commands: each is refused in one sentence that names the mistake, and nothing is left behind."""

import shlex
import shutil
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest
from PIL import Image

from engram import data as datasets
from engram.data.tokenizer import Tokenizer
from engram.hub.huggingface import save_checkpoint
from engram.transformers.bert.model import BERT
from engram.transformers.bert.recipe import SPECIALS
from engram.transformers.vit.model import ViT

TABLE = {
    "": [
        ("train mlp", 'Did you mean "engram run"'),
        ("generate runs/gpt-1", 'Did you mean "engram sample"'),
        ("score runs/mlp-1", 'Did you mean "engram evaluate"'),
        ("compare runs/mlp-1 runs/mlp-2", 'Did you mean "engram report"'),
        ("look runs/mlp-1", 'Did you mean "engram inspect"'),
        ("download mnist", 'Did you mean "engram data get"'),
        ("rum mlp", 'Did you mean "run"'),
        ("LIST", 'Did you mean "list"'),
        ("mlp", 'Did you mean "engram run mlp"'),
        ("--steps 5 run mlp", "begins with a verb"),
    ],
    "list": [
        ("--jsn", 'Did you mean "--json"'),
        ("mlp", 'no place for "mlp"'),
    ],
    "run": [
        ("cnm", 'no recipe "cnm". Did you mean "cnn"'),
        ("--preset tiny", "begins with the name of a recipe"),
        ("mlp --preset tinny", 'Did you mean "tiny"'),
        ("mlp --stepz 5", 'Did you mean "--steps"'),
        ("mlp --steps five", '--steps must be a whole number, not "five"'),
        ("mlp --steps", "--steps needs a value"),
        ("mlp --steps 0", "steps must be at least 1, not 0"),
        ("mlp --steps 99999999999999999999", "steps must be a number below 2^63"),
        ("mlp --lr 0,01", '--lr must be a number, not "0,01"'),
        ("mlp --lr nan", "lr must be a finite number, not nan"),
        ("mlp --hidden wide", '--hidden must be one or several numbers, not "wide"'),
        ("mlp --schedule cosin", "--schedule must be constant, cosine or linear"),
        ("mlp --optimizer adamm", 'Did you mean "adam'),
        ("mlp -steps 5", "has no flag -steps"),
        ("mlp steps=5", 'no place for "steps=5"'),
        ("mlp --quiet yes", 'no place for "yes"'),
        ("mlp --device tpu", "--device must be auto, cpu or cuda"),
        ("mlp --warmup 0.9 --stable-fraction 0.5", "warmup and stable_fraction must leave steps"),
        ("mlp --seed -1", "seed"),
        ("mlp --data nowhere.csv", "nowhere.csv"),
        ("mlp --data mnits", 'Did you mean "mnist"'),
        ("mlp --data {given}/empty", "holds no images"),
        ("mlp --data {given}/notes.pdf", "of no kind that can be read"),
        ("mlp --data {given}/one-class", 'only one class, "cats"'),
        ("mlp --data {given}/empty-class", "dogs is the folder of a class and holds no images"),
        ("mlp --data {given}/no-image", "picture.png"),
        ("mlp --data {given}/nan.npy", "nan.npy"),
        ("mlp --data shakespeare", "learns from labeled images"),
        ("mlp --data digits --batch 5000", "A batch has 5,000 images, and the training set of digits only 1,297"),
        ("mlp --data digits --hidden 999999999999", "The memory is not enough"),
        ("rbm --data digits --hidden 999999999999", "The memory is not enough"),
        ("rbm --temperatures 4 --no-persistent", "Parallel tempering"),
        ("cnn --data digits --out {given}/full", "is not empty and holds no run (thesis.txt is in it)"),
        ("cnn --out {mlp}", "already holds a run"),
        ("cnn --preset tiny --out {given}/notes.pdf/run", "cannot be written"),
        ("mlp --resume", "needs --out"),
        ("cnn --resume --out {mlp}", "holds a run of mlp, not of cnn"),
        ("mlp --preset tiny --resume --out {mlp} --lr 5", "other settings of --lr"),
        ("--resume", "needs FOLDER"),
        ("--resume {runs}/mlq", 'there is no such folder. Did you mean "{mlp}"'),
        ("--resume {given}/over", "is finished: add --steps"),
        ("--resume {mlp} --steps 5", "is at step 20 already"),
        ("--resume {mlp} --steps five", '--steps must be a whole number, not "five"'),
        ("--resume {mlp} --lr 1", "has no flag --lr"),
        ("--resume {given}/stateless", "state is missing, the folder of its checkpoints"),
        ("--resume {given}/damaged", "recipe.json is damaged"),
        ("gpt --data {given}/short.txt", "is empty, or nearly"),
        ("gpt --data {given}/latin1.txt", "is not UTF-8 text"),
        ("gpt --data digits", "digits"),
        ("gpt --context 100000000", "A training step would take at least"),
        ("gpt --width 30 --heads 4", "heads"),
        ("gpt --lora 4", "lora adapts a checkpoint: name one with --from"),
        ("gpt --data {given}/text.txt --from somebody/nothing", "could not be reached"),
        ("gpt --preset tiny --shard", "start them with torchrun"),
        ("bert --data {given}/text.txt --from {given}/headless", "has no masked language model head"),
        ("bert --data {given}/text.txt --from {mlp}", "holds an MLP, and a BERT is needed"),
        ("vit --data digits --patch 5", "patch must divide images of 8 × 8"),
        ("translate --data {given}/no-tab.tsv", "tab"),
        ("clip --data {given}/captions", "nowhere.png, which is not in the folder"),
        ("lif --neurons 100000000000", "take fewer --neurons"),
        ("lif --steps 100000000000", "take fewer --steps"),
        ("lif --window-ms 0", "window_ms must be at least step_ms"),
        ("population --neurons 100000000000", "memory"),
        ("optimizers --data mnist", "optimizers needs no data"),
    ],
    "sample": [
        ("--count 3", "begins with a run folder or a checkpoint, not with --count"),
        ("{runs}/mlq", 'Did you mean "{mlp}"'),
        ("runs/mlp-9", "There is no run folder runs/mlp-9, and the Hugging Face hub"),
        ("{mlp} --count 100000000000", "100,000,000,000 samples would take at least"),
        ("{mlp} --count -1", "count must be at least 0"),
        ("{mlp} --step 7", "no checkpoint of step 7"),
        ("{mlp} --prompt hello", "has no flag --prompt"),
        ("{gpt} --temperature nan", "temperature must be a finite number, not nan"),
        ("{gpt} --temprature 1", 'Did you mean "--temperature"'),
        ("{gpt} --top-p 2", "top_p must be above 0 and at most 1"),
        ("{gpt} --prompt ☃", "not in the vocabulary"),
        ("{gpt} --draft {mlp}", "holds an MLP, and a GPT is needed"),
        ("{given}/vit", "comes without data: give it an --image"),
        ("{given}/vit --image nowhere.png", "There is no image nowhere.png"),
    ],
    "predict": [
        ("", "engram predict needs RUN"),
        ("{mlp}", "needs files to predict from"),
        ("{mlp} nowhere.png", "There is no file or folder nowhere.png"),
        ("{mlp} {given}/text.txt", "cannot be read as an image"),
        ("{mlp} {given}/nan.npy", 'The column "image" of the array has nan in row 1'),
        ("{mlp} {given}/numbers.csv", "has 3 columns, and the model takes images of 64 pixels"),
        ("{mlp} {given}/empty", "holds no file that ends in .png"),
        ("{mlp} -", "- is not read as images"),
        ("{mlp} {given}/nan.npy --out lines.txt", "must end in .csv, .jsonl, .parquet"),
        ("{mlp} {given}/nan.npy --batch none", '--batch must be a whole number, not "none"'),
        ("{gpt} {given}/text.txt", "predicts nothing about new inputs"),
        ("{given}/headless {given}/text.txt", "holds a BERT, which predicts nothing about new inputs"),
    ],
    "evaluate": [
        ("", "engram evaluate needs RUN"),
        ("{mlp}", "needs data"),
        ("{runs}/mlq --data digits", 'Did you mean "{mlp}"'),
        ("{mlp} --data digitz", 'Did you mean "digits"'),
        ("{mlp} --data {given}/text.txt", "mlp is evaluated on labeled images"),
        ("{mlp} --data {given}/big.npz", "images of 1×8×8, and those of"),
        ("{mlp} --data {given}/letters.npz", 'have the class "a", and the model knows 0, 1, 2'),
        ("{mlp} --data {given}/big.npz --resamples many", '--resamples must be a whole number, not "many"'),
        ("{gpt} --data digits", "digits has no text"),
    ],
    "sweep": [
        ("mlpp", 'Did you mean "mlp"'),
        ("mlp", "needs a setting to vary"),
        ("mlp --lr 1e-2:1e-4", "LOW must be below HIGH"),
        ("mlp --lr 1:x", "takes a range LOW:HIGH of two numbers, not 1:x"),
        ("mlp --lrr 1:2", 'Did you mean "--lr"'),
        ("mlp --lr 1e-4:1e-2 --trials 0", "trials must be at least 1, not 0"),
    ],
    "chat": [
        ("--system hello", "begins with a model"),
        ("{mlp}", "holds an MLP, which does not write text"),
        ("{gpt}", "has no chat template"),
        ("{gpt} --bits 5", '--bits must be 32, 8 or 4, not "5"'),
    ],
    "embed": [
        ("", "engram embed needs MODEL"),
        ("{gpt}", "engram embed needs files"),
        ("{gpt} {given}/nowhere.txt", "There is no file"),
        ("{gpt} {given}/text.txt --out vectors.csv", "must end in .npz or .npy"),
        ("{gpt} {given}/text.txt --batch 0", "--batch must be at least 1, not 0"),
        ("{mlp} {given}/text.txt", "which gives no vectors of texts"),
    ],
    "search": [
        ("", "engram search needs QUERY"),
        ("word", "engram search needs files or folders"),
        ("word nowhere", "There is no file or folder nowhere"),
        ("word {given}/text.txt --top 0", "--top must be at least 1, not 0"),
    ],
    "models": [
        ("fetch smollm2", 'no action of `engram models` "fetch"'),
        ("get", "engram models get needs NAME"),
        ("get smolm2", 'Did you mean "smollm2"'),
    ],
    "inspect": [
        ("nowhere/at/all", "There is no folder nowhere/at/all"),
        ("{given}/notes.pdf", "notes.pdf"),
        ("{mlp} --item 100000", "item must be from 0 to 249"),
        ("{mlp} --item first", '--item must be a whole number, not "first"'),
    ],
    "report": [
        ("", "needs a run folder"),
        ("{given}/empty", "is not a run folder: it has no recipe.json"),
        ("{mlp} --out page.html", "--out is for a comparison of several"),
    ],
    "attack": [
        ("{gpt}", "is no image classifier"),
        ("{mlp} --eps -1", "eps must be at least 0"),
        ("{mlp} --norm l3", "--norm must be linf or l2"),
        ("{mlp} --surrogate {given}/empty", "empty is not a run folder"),
    ],
    "check": [
        ("rbm --preset tiny", "does not learn by the gradient of a loss alone"),
        ("mlpp", 'Did you mean "mlp"'),
    ],
    "export": [
        ("", "engram export needs RUN"),
        ("{mlp} --to pdf", "--to must be hf, onnx or word2vec"),
        ("{mlp} --to word2vec", "--to word2vec is for word vectors"),
        ("{mlp} --to hf", "An MLP has no counterpart in transformers"),
        ("{gpt} --to hf --out {gpt}", "holds a run, whose files would be replaced"),
    ],
    "data": [
        ("fetch mnist", 'no action of `engram data` "fetch"'),
        ("get", "engram data get needs NAME"),
        ("get mnits", 'Did you mean "mnist"'),
        ("get points", "is generated when it is loaded"),
    ],
    "bench": [
        ("nothing", 'There is no benchmark "nothing"'),
        ("--rounds many", '--rounds must be a whole number, not "many"'),
    ],
    "lab": [
        ("--port x", '--port must be a whole number, not "x"'),
        ("--port 99999999", "port must be from 1 to 65535"),
        ("--max-jobs -1", "max_jobs must be at least 1"),
        ("--memory-gb 0", "memory_gb must be above 0"),
        ("--runs {given}/notes.pdf --port 0 --no-browser", "cannot be written"),
    ],
}
"""by verb: the rest of the command line, and words of the sentence"""
WRONG = [(f"{verb} {rest}".strip(), words) for verb, rows in TABLE.items() for rest, words in rows]


def paint(folder: Path, count: int) -> None:
    folder.mkdir(parents=True)
    for i in range(count):
        Image.new("L", (8, 8), i).save(folder / f"{i}.png")


@pytest.fixture(scope="module")
def given(tmp_path_factory, finished):
    """Files and folders that are wrong in one way each."""
    for name in ("digits", "shakespeare"):  # here: a download is announced
        datasets.load(name)
    home = tmp_path_factory.mktemp("given")
    for name in ("empty", "full", "no-image", "captions", "stateless", "damaged"):
        (home / name).mkdir()
    (home / "full" / "thesis.txt").write_text("the only copy")
    (home / "notes.pdf").write_text("%PDF")
    (home / "text.txt").write_text("one two three four five six\n" * 50)
    (home / "short.txt").write_text("ab")
    (home / "latin1.txt").write_bytes("Größe und Maß der Dinge. ".encode("latin-1") * 100)
    (home / "no-tab.tsv").write_text("one text alone\n" * 20)
    (home / "no-image" / "picture.png").write_text("no image at all")
    (home / "captions" / "captions.tsv").write_text("nowhere.png\ta caption\n")
    np.save(home / "nan.npy", np.full((20, 8, 8), np.nan))
    (home / "numbers.csv").write_text("1,2,3\n4,5,6\n")
    np.savez(home / "big.npz", x=np.zeros((20, 3, 24, 24), np.uint8), y=np.arange(20) % 2)
    np.savez(home / "letters.npz", x=np.zeros((20, 8, 8), np.uint8), y=np.array(["a", "b"] * 10))
    paint(home / "one-class" / "cats", 20)
    paint(home / "empty-class" / "cats", 20)
    (home / "empty-class" / "dogs").mkdir()
    for name in ("recipe.json", "config.json"):
        content = (finished("mlp") / name).read_text()
        (home / "stateless" / name).write_text(content)
        (home / "damaged" / name).write_text(content[:50])
    shutil.copytree(finished("mlp"), home / "over")
    (home / "over" / "report.html").write_text("the report")
    words = Tokenizer.train("words", ["one two three"] * 9, special_tokens=SPECIALS, template="[CLS] $A [SEP]")
    config = BERT.Config(width=16, layers=1, heads=2, vocabulary=words.vocab_size, masked=False)
    save_checkpoint(BERT(config), home / "headless", words)
    save_checkpoint(ViT(ViT.Config(width=16, layers=1, heads=2, patch=7, shape=(1, 28, 28))), home / "vit")
    return home


def files_of(*folders: Path) -> dict[str, bytes]:
    """Every file and folder within, with its content; locks come and go."""
    found = (path for folder in folders for path in folder.rglob("*") if path.name != ".lock")
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in found}


def no_network(*args, **options):
    raise ConnectionError("there is no network")


def test_there_are_a_hundred():
    assert len(dict(WRONG)) >= 100


@pytest.mark.parametrize(("line", "words"), WRONG, ids=[line or "nothing" for line, _ in WRONG])
def test_a_wrong_command_is_refused_in_one_sentence(line, words, engram, given, finished, tmp_path, monkeypatch):
    places = {name: finished(name) for name in ("mlp", "gpt") if f"{{{name}}}" in line or f"{{{name}}}" in words}
    places |= {"given": given, "runs": finished("mlp").parent}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", no_network)
    watched = (tmp_path, given, *(places[name] for name in ("mlp", "gpt") if name in places))
    before = files_of(*watched)
    answer = engram(*shlex.split(line.format(**places)))
    assert answer.code == 2, answer
    assert answer.err.startswith("engram: "), answer.err
    assert answer.err.count("\n") == 1, answer.err
    assert answer.err[-2] in ".?", answer.err
    assert words.format(**places) in answer.err
    assert files_of(*watched) == before
