"""CLIP on captioned pictures: learns which text belongs to which picture, and then names what it was never taught."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from engram import data as datasets
from engram.core.errors import EngramError
from engram.core.learner import Batch, Descent, Gradient, Learner, Metrics
from engram.core.registry import Item, Request, Sample, must_be_item, recipe
from engram.core.seeding import generator
from engram.core.tap import watch
from engram.data.augment import Augment
from engram.data.batches import Batches
from engram.data.dataset import Data, Info, Split
from engram.data.pairs import padded
from engram.data.preprocess import Preprocess
from engram.data.shapes import COLOURS, SHAPES
from engram.data.tokeniser import Kind, Tokeniser
from engram.figures import attention, clip, pictures, rollout
from engram.figures.figure import Figure
from engram.interop.huggingface import Checkpoint
from engram.layers.pictures import brightness
from engram.models.clip import CLIP
from engram.recipes.language import MUON, TOKENISER, Pretrained, architecture, checkpoint, spoken
from engram.recipes.vit import fitted, own_picture

SPECIALS = ("<unk>", "<|startoftext|>", "<pad>", "<|endoftext|>")
EVALUATION_BATCH = 250
SHOWN = 16
OTHERS = 100
"""pictures and captions of the test with which what is looked at is compared"""


@dataclass(frozen=True, kw_only=True)
class Naming:
    """What is to be named, and by which labels."""

    image: str = ""
    """a picture of your own; without one, some of the test"""
    labels: tuple[str, ...] = ()
    """texts to choose from; without any, the captions of the data"""


@dataclass(frozen=True, kw_only=True)
class CaptionedItem(Item):
    """What is looked at."""

    image: str = ""
    """a picture of your own, instead of one of the test"""
    text: str = ""
    """a text of your own, instead of the picture's caption"""


@dataclass(frozen=True)
class Captioned:
    """Captioned pictures with their tokeniser."""

    data: Data
    tokeniser: Tokeniser
    captions: tuple[str, ...]
    """every caption once"""
    context: int
    """tokens of a caption at most"""
    preprocess: Preprocess | None = None
    """how a checkpoint wants pictures of any size, if it says so"""

    @property
    def info(self) -> Any:
        return self.data.info

    @property
    def folder(self) -> Path | None:
        return self.data.folder


@recipe
@dataclass(frozen=True, kw_only=True)
class CLIPRecipe(Pretrained):
    """Two encoders learn which text belongs to which picture, and can then name what they were never taught."""

    name: ClassVar[str] = "clip"
    title: ClassVar[str] = "CLIP"
    notes: ClassVar[str] = "000 «Multimodal models»"
    Model: ClassVar[type[nn.Module]] = CLIP
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": {
            "items": 200, "width": 16, "layers": 1, "heads": 2, "text_width": 16, "text_layers": 1, "text_heads": 2,
            "patch": 8, "space": 16, "batch": 16, "steps": 20, "every": 10,
        },
        "full": {
            "data": "emoji", "width": 128, "layers": 4, "heads": 4, "patch": 8, "steps": 6000, "every": 500,
            "minutes": 28.0, "shift": 2, "rotate": 10.0, "zoom": 0.2, "colour": 0.5,
        },
    }  # fmt: skip
    best: ClassVar[tuple[str, str]] = ("valid_loss", "min")
    samples: ClassVar[int] = 8
    Ask: ClassVar[type] = Naming
    Subject: ClassVar[type] = CaptionedItem

    data: str = "shapes"
    """data set of captioned pictures (`engram data list`), or a folder with pictures and captions.tsv"""
    steps: int = 650
    every: int = 200
    batch: int = 128
    """pictures in a batch"""
    items: int = 20_000
    """pictures to draw, of shapes"""
    tokeniser: Kind = "words"
    """what a token is: characters, bytes, bpe, wordpiece or words; a checkpoint brings its own"""
    tokens: int = 4000
    """tokens that bpe, wordpiece and words learn"""
    augment: Augment = field(default_factory=Augment)
    """how pictures are varied while learning"""
    model: CLIP.Config = field(default_factory=lambda: CLIP.Config(patch=8))
    """the architecture"""
    descent: Descent = replace(MUON, weight_decay=0.05)
    """how to go downhill"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch < 2:
            raise EngramError(f"batch must be at least 2, so that there is something to tell apart, not {self.batch}.")
        if self.descent.accumulate > 1:
            raise EngramError("Each picture is compared with every text of its batch, so accumulate must be 1.")

    @property
    def per_step(self) -> float:
        return self.batch

    # ------------------------------------------------------------------ data

    def load(self) -> Captioned:
        loaded = self._pictures()
        if self.from_:
            model, tokeniser = checkpoint(self.from_, CLIP)
            config = matcher(model).config
            return self._captioned(fitted(loaded, config.shape), spoken(tokeniser, self.from_), config.context)
        texts = (text for split in loaded.splits.values() for text in split["caption"])
        made = Tokeniser.train(
            self.tokeniser, texts, size=self.tokens, specials=SPECIALS, template="<|startoftext|> $A <|endoftext|>"
        )
        return self._captioned(loaded, made, self.model.context)

    def _pictures(self) -> Data:
        options = {"count": self.items} if self.data == "shapes" else {}
        loaded = datasets.load(self.data, **options)
        if not {"image", "caption"} <= set(loaded.train):
            raise EngramError(f"{self.name} learns from captioned pictures, and {self.data} has no captions.")
        return loaded

    def _captioned(self, data: Data, tokeniser: Tokeniser, context: int) -> Captioned:
        captions = dict.fromkeys(text for split in data.splits.values() for text in split["caption"])
        return Captioned(data, tokeniser, tuple(captions), context)

    def bare(self, found: Checkpoint, info: Info) -> Captioned:
        context, tokeniser = matcher(found.model).config.context, spoken(found.tokeniser, found.path)
        return Captioned(Data(info, {}), tokeniser, (), context, found.preprocess)

    def reload(self, folder: Path) -> Captioned:
        config = architecture(folder)
        data = fitted(replace(self._pictures(), folder=folder), tuple(config["shape"]))
        return self._captioned(data, Tokeniser.load(folder / TOKENISER), config["context"])

    def files(self, data: Captioned) -> Mapping[str, bytes]:
        return {TOKENISER: data.tokeniser.to_bytes()}

    # ------------------------------------------------------------------ learning

    def learner(self, data: Captioned) -> Gradient:
        image = data.data.train["image"]
        seen: dict[str, Any] = {} if self.from_ else {"shape": tuple(image.shape[1:]), **brightness(image)}
        end = data.tokeniser.id("<|endoftext|>")
        config = replace(self.model, vocabulary=data.tokeniser.vocabulary, end=end, **seen)
        return Gradient(self.begun(data.folder, config), self.loss, self.descent, self.steps)

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Metrics]:
        loss, right = matcher(model).loss(batch["image"], batch["text"], batch["same"])
        return loss, {"accuracy": right}

    def batches(self, data: Captioned) -> Batches:
        def prepare(batch: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
            text = self.encoded(data, batch["caption"])
            image = self.augment(batch["image"].float().div_(255), generator)
            same = torch.tensor([[a == b for b in batch["caption"]] for a in batch["caption"]])
            return {"image": image, "text": text, "same": same}

        columns = Split({"image": data.data.train["image"], "caption": list(data.data.train["caption"])})
        return Batches(columns, self.batch, generator(self.seed, "batches"), prepare)

    def encoded(self, data: Captioned, texts: Sequence[str]) -> Tensor:
        """Texts as rows of tokens, filled up with the token that ends them."""
        context, end = data.context, data.tokeniser.id("<|endoftext|>")
        rows = data.tokeniser.encode_all(texts)
        return padded([row if len(row) <= context else [*row[: context - 1], end] for row in rows], end)

    # ------------------------------------------------------------------ judging

    def evaluate(self, learner: Learner, data: Captioned, split: str) -> dict[str, float]:
        """How often a picture finds its caption among all captions, and a caption its picture."""
        model, part = matcher(learner.model), data.data[split]
        u_ND, w_ND = self.pictures(model, part["image"]), self.texts(model, data, list(part["caption"]))
        choices = dict.fromkeys([*part["caption"]])
        w_KD = self.texts(model, data, list(choices))
        number = {text: i for i, text in enumerate(choices)}
        own_N = torch.tensor([number[text] for text in part["caption"]])
        found = (u_ND @ w_KD.T).argmax(1) == own_N
        back_K = (w_KD @ u_ND.T).argmax(1)
        losses = [
            model.match(u, w, torch.tensor([[a == b for b in texts] for a in texts]))[0].item() * len(u)
            for u, w, texts in self.parts(u_ND, w_ND, list(part["caption"]))
        ]
        measured = {
            "loss": sum(losses) / len(u_ND),
            "text_accuracy": found.double().mean().item(),
            "picture_accuracy": (own_N[back_K] == torch.arange(len(choices))).double().mean().item(),
        }
        if "unseen" in data.data.splits:
            measured["unseen_accuracy"] = self.unseen(model, data)
        if "concept" in part and split == "test":
            measured["concept_accuracy"] = self.concepts(model, data, part)
        return measured

    def parts(self, u_ND: Tensor, w_ND: Tensor, texts: list[str]) -> Iterator[tuple[Tensor, Tensor, list[str]]]:
        for start in range(0, len(texts), self.batch):
            rows = slice(start, start + self.batch)
            yield u_ND[rows], w_ND[rows], texts[rows]

    def pictures(self, model: CLIP, image: Any) -> Tensor:
        parts = torch.arange(len(image)).split(EVALUATION_BATCH)
        with torch.no_grad():
            return torch.cat([model.pictures(image[index].float() / 255) for index in parts])

    def texts(self, model: CLIP, data: Captioned, texts: Sequence[str]) -> Tensor:
        parts = [texts[start : start + EVALUATION_BATCH] for start in range(0, len(texts), EVALUATION_BATCH)]
        with torch.no_grad():
            return torch.cat([model.texts(self.encoded(data, part)) for part in parts])

    def unseen(self, model: CLIP, data: Captioned) -> float:
        """Pairs of colour and shape that were never learnt, picked among all pairs in the picture's own caption."""
        part = data.data["unseen"]
        pairs = [f"{colour} {shape}" for colour in COLOURS for shape in SHAPES]
        u_ND = self.pictures(model, part["image"])
        own = [pairs[label] for label in part["label"].tolist()]
        texts = [
            text.replace(mine, other, 1) for text, mine in zip(part["caption"], own, strict=True) for other in pairs
        ]
        choices = {text: i for i, text in enumerate(dict.fromkeys(texts))}
        w_KD = self.texts(model, data, list(choices))
        w_NPD = w_KD[torch.tensor([choices[text] for text in texts])].view(len(own), len(pairs), -1)
        guess_N = torch.einsum("nd,npd->np", u_ND, w_NPD).argmax(1)
        return (guess_N == part["label"]).double().mean().item()

    def concepts(self, model: CLIP, data: Captioned, part: Split) -> float:
        """Drawings in a style never seen whose concept is found among all concepts by its name."""
        w_KD = self.texts(model, data, data.data.classes)
        guess_N = (self.pictures(model, part["image"]) @ w_KD.T).argmax(1)
        names = data.data.classes
        right = [names[g] == names[c] for g, c in zip(guess_N.tolist(), part["concept"].tolist(), strict=True)]
        return sum(right) / len(right)

    # ------------------------------------------------------------------ showing

    def figures(self, learner: Learner, data: Captioned) -> Iterator[Figure]:
        model, part = matcher(learner.model), data.data.test
        chosen = torch.linspace(0, len(part) - 1, min(len(part), SHOWN)).round().long()
        image, captions = part["image"][chosen], [part["caption"][i] for i in chosen.tolist()]
        logits = model.compare(self.pictures(model, image), self.texts(model, data, captions)).detach()
        yield clip.similarity(logits, image.float() / 255, captions, paired=True)
        yield from clip.retrieval(logits, image.float() / 255, captions, paired=True)
        yield from self.views(model, data, image[:1].float() / 255, captions[0])

    def views(self, model: CLIP, data: Captioned, image_1CHW: Tensor, text: str) -> Iterator[Figure]:
        """Where the two encoders look in one picture and in one text."""
        x_1T = self.encoded(data, [text])
        with torch.no_grad(), watch(model, "*attention.weights") as seen:
            model(image_1CHW, x_1T)
        in_picture = {name: value for name, value in seen.items() if name.startswith("picture")}
        in_text = {name: value for name, value in seen.items() if name.startswith("text")}
        grid = model.picture.patches.grid
        patches = ["class", *map(str, range(1, 1 + grid[0] * grid[1]))]
        yield rollout.rollout_picture(in_picture, image_1CHW[0], grid).of("picture encoder")
        yield rollout.class_attention(in_picture, image_1CHW[0], grid).of("picture encoder")
        yield attention.attention_grid(in_picture, patches).of("picture encoder")
        yield attention.attention_grid(in_text, data.tokeniser.tokens(x_1T[0].tolist())).of("text encoder")

    def among_others(self, model: CLIP, data: Captioned, image_1CHW: Tensor, text: str) -> tuple[float, list[Figure]]:
        """The cosine of a picture and a text, and those of each with others of the test."""
        images, texts = [image_1CHW], [text]
        if "test" in data.data.splits:
            part = data.data.test
            chosen = torch.linspace(0, len(part) - 1, min(len(part), OTHERS)).round().long()
            others = part["image"][chosen].float() / 255
            images.append(others[(others != image_1CHW).flatten(1).any(1)])
            texts += [other for other in dict.fromkeys(part["caption"][i] for i in chosen.tolist()) if other != text]
        image_BCHW = torch.cat(images)
        with torch.no_grad():
            cosine_BK = model.pictures(image_BCHW) @ self.texts(model, data, texts).T
        shown = clip.retrieval(cosine_BK, image_BCHW, texts, paired=True, some=1, best=8)
        drawn = []
        for figure, what, cosine_N in zip(shown, ("picture", "text"), (cosine_BK[:, 0], cosine_BK[0]), strict=True):
            rank = 1 + int((cosine_N > cosine_N[0]).sum())
            caption = f"The best by their cosine. The {what} looked at, green, is number {rank} of {len(cosine_N)}."
            drawn.append(replace(figure, caption=caption))
        return cosine_BK[0, 0].item(), drawn

    def _item(self, data: Captioned, item: int) -> tuple[Tensor, str]:
        part = data.data.test
        must_be_item(item, len(part))
        return part["image"][torch.tensor([item])].float() / 255, part["caption"][item]

    def look(self, model: nn.Module, data: Captioned, subject: CaptionedItem) -> tuple[str, list[Figure]]:
        image, text = (torch.empty(0), "") if subject.image and subject.text else self._item(data, subject.item)
        image = own_picture(subject.image, matcher(model).config.shape, data.preprocess) if subject.image else image
        text = subject.text or text
        cosine, among = self.among_others(matcher(model), data, image, text)
        said = f"{subject.image or f'test picture {subject.item}'} and «{text}», cosine {cosine:.2f}"
        return said, [*among, *self.views(matcher(model), data, image, text)]

    def probe(self, model: nn.Module, data: Captioned, item: int) -> str:
        image, text = self._item(data, item)
        model(image, self.encoded(data, [text]))
        return f"test picture {item}, «{text}»"

    def sample(self, learner: Learner, data: Captioned, request: Request) -> Sample:
        """A zero-shot classifier: which of the labels goes best with each picture."""
        model, ask = matcher(learner.model), request.ask
        if ask.image:
            image, truth = own_picture(ask.image, model.config.shape, data.preprocess), [ask.image]
        else:
            index = torch.randint(len(data.data.test), (request.count,), generator=request.generator)
            image = data.data.test["image"][index].float() / 255
            truth = [data.data.test["caption"][i] for i in index.tolist()]
        labels = ask.labels or data.captions
        if not labels:
            raise EngramError("There are no captions to choose from: give some --labels.")
        p_BK = model.compare(model.pictures(image), self.texts(model, data, labels)).softmax(1)
        best = p_BK.topk(min(3, len(labels)))
        lines = [
            f"{name}:  " + "   ".join(f"{labels[i]} {p:.0%}" for i, p in zip(places, ps, strict=True))
            for name, places, ps in zip(truth, best.indices.tolist(), best.values.tolist(), strict=True)
        ]
        arrays = {"image": image, "probability": best.values, "label": best.indices}
        return Sample(arrays, "\n".join(lines), pictures.grid(image))


def matcher(model: nn.Module) -> CLIP:
    assert isinstance(model, CLIP)
    return model
