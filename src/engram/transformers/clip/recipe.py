"""Recipe of CLIP: contrastive training on captioned images, and zero-shot classification."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import torch
from annotated_types import Ge
from torch import Tensor, nn

from engram import data as datasets
from engram.core.config import from_json
from engram.core.errors import EngramError
from engram.core.learner import Batch, Learner, Metrics
from engram.core.recipe import InspectArgs, Sample, SampleArgs, SampleRequest, check_item, choose_items
from engram.core.registry import register
from engram.core.seeding import generator
from engram.core.tap import watch
from engram.data.augment import Augment
from engram.data.dataset import Data, Info, Split
from engram.data.loaders import BatchLoader
from engram.data.preprocess import Preprocess
from engram.data.shapes import COLORS, SHAPES
from engram.data.text_pairs import pad_rows
from engram.data.tokenizer import Kind, Tokenizer
from engram.hub.classify import load_image
from engram.hub.huggingface import Checkpoint
from engram.nn.image_input import pixel_statistics
from engram.plots import attention, images, rollout
from engram.plots.figure import Figure
from engram.training.learner import GradientLearner
from engram.training.optimizer import OptimizerConfig
from engram.transformers.base import MUON, TOKENIZER, Pretrained, load_pretrained, read_architecture, require_tokenizer
from engram.transformers.clip import plots
from engram.transformers.clip.model import CLIP
from engram.transformers.vit.recipe import resize_images

SPECIALS = ("<unk>", "<|startoftext|>", "<pad>", "<|endoftext|>")
EVALUATION_BATCH = 250
SHOWN = 16
"""images and captions of the similarity matrix"""
OTHERS = 100
"""test images and captions with which the inspected pair is compared"""


@dataclass(frozen=True, kw_only=True)
class ZeroShotArgs(SampleArgs):
    """Flags of `engram sample` for CLIP: zero-shot classification."""

    image: str = ""
    """image file to classify; by default some of the test split"""
    labels: tuple[str, ...] = ()
    """label texts; by default the captions of the data"""


@dataclass(frozen=True, kw_only=True)
class CLIPInspectArgs(InspectArgs):
    """Flags of `engram inspect` for CLIP."""

    image: str = ""
    """image file to inspect, instead of one of the test split"""
    text: str = ""
    """text to inspect, instead of the caption of the image"""


@dataclass(frozen=True)
class CaptionedImages:
    """Captioned images with their tokenizer."""

    data: Data
    tokenizer: Tokenizer
    captions: tuple[str, ...]
    """distinct captions"""
    context: int
    """largest number of tokens of a caption"""
    preprocess: Preprocess | None = None
    """image preprocessing of a checkpoint, if it has one"""
    pad_id: int | None = None
    """token that fills every caption up to the context (SigLIP); None pads with the token that ends it"""

    @property
    def info(self) -> Any:
        return self.data.info

    @property
    def folder(self) -> Path | None:
        return self.data.folder


@register
@dataclass(frozen=True, kw_only=True)
class CLIPRecipe(Pretrained[CLIP, CaptionedImages]):
    """Contrastive pretraining of an image and a text encoder, for zero-shot classification and retrieval."""

    name: ClassVar[str] = "clip"
    title: ClassVar[str] = "CLIP"
    Model: ClassVar[type[nn.Module]] = CLIP
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": {
            "items": 200, "width": 16, "layers": 1, "heads": 2, "text_width": 16, "text_layers": 1, "text_heads": 2,
            "patch": 8, "projection_dim": 16, "batch": 16, "steps": 20, "eval_every": 10,
        },
        "full": {
            "data": "emoji", "width": 128, "layers": 4, "heads": 4, "patch": 8, "steps": 6000, "eval_every": 500,
            "minutes": 28.0, "shift": 2, "rotate": 10.0, "zoom": 0.2, "color": 0.5,
        },
    }  # fmt: skip
    best: ClassVar[tuple[str, str]] = ("valid_loss", "min")
    samples: ClassVar[int] = 8
    SampleArgs: ClassVar[type] = ZeroShotArgs
    InspectArgs: ClassVar[type] = CLIPInspectArgs

    data: str = "shapes"
    """data set of captioned images (`engram data list`), or a folder with images and captions.tsv"""
    steps: int = 650
    eval_every: int = 200
    batch: Annotated[int, Ge(2)] = 128
    """pairs per batch, among which each image has to find its text"""
    items: int = 20_000
    """number of images to generate, for --data shapes"""
    tokenizer: Kind = "words"
    """kind of tokenizer; with --from, that of the checkpoint is used"""
    vocab_size: int = 4000
    """vocabulary size of bpe, wordpiece and words tokenizers"""
    augment: Augment = field(default_factory=Augment)
    """data augmentation of training images"""
    model: CLIP.Config = field(default_factory=lambda: CLIP.Config(patch=8))
    """architecture"""
    optimization: OptimizerConfig = replace(MUON, weight_decay=0.05)
    """optimizer and learning-rate schedule"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.optimization.grad_accum > 1:
            raise EngramError("Each image is compared with every text of its batch, so grad_accum must be 1.")

    @property
    def items_per_step(self) -> float:
        return self.batch

    # ------------------------------------------------------------------ data

    def load(self) -> CaptionedImages:
        loaded = self._load_images()
        if self.from_:
            model, tokenizer = load_pretrained(self.from_, CLIP)
            data = resize_images(loaded, model.config.shape)
            return self._with_captions(data, require_tokenizer(tokenizer, self.from_), model.config)
        texts = (text for split in loaded.splits.values() for text in split["caption"])
        template = "<|startoftext|> $A <|endoftext|>"
        trained = Tokenizer.train(
            self.tokenizer, texts, vocab_size=self.vocab_size, special_tokens=SPECIALS, template=template
        )
        return self._with_captions(loaded, trained, replace(self.model, pad_id=trained.token_to_id("<pad>")))

    def _load_images(self) -> Data:
        options = {"count": self.items} if self.data == "shapes" else {}
        loaded = datasets.load(self.data, **options)
        if not {"image", "caption"} <= set(loaded.train):
            raise EngramError(f"{self.name} learns from captioned images, and {self.data} has no captions.")
        return loaded

    def _with_captions(
        self, data: Data, tokenizer: Tokenizer, config: CLIP.Config, preprocess: Preprocess | None = None
    ) -> CaptionedImages:
        captions = dict.fromkeys(text for split in data.splits.values() for text in split["caption"])
        pad_id = config.pad_id if config.text_pooling == "last" else None
        return CaptionedImages(data, tokenizer, tuple(captions), config.context, preprocess, pad_id)

    def data_of_checkpoint(self, checkpoint: Checkpoint, info: Info) -> CaptionedImages:
        model: Any = checkpoint.model
        tokenizer = require_tokenizer(checkpoint.tokenizer, checkpoint.path)
        return self._with_captions(Data(info, {}), tokenizer, model.config, checkpoint.preprocess)

    def reload(self, folder: Path) -> CaptionedImages:
        config = from_json(CLIP.Config(), read_architecture(folder))
        data = resize_images(replace(self._load_images(), folder=folder), config.shape)
        return self._with_captions(data, Tokenizer.load(folder / TOKENIZER), config)

    def files(self, data: CaptionedImages) -> Mapping[str, bytes]:
        return {TOKENIZER: data.tokenizer.to_bytes()}

    # ------------------------------------------------------------------ training

    def learner(self, data: CaptionedImages) -> GradientLearner[CLIP]:
        image = data.data.train["image"]
        derived: dict[str, Any] = {} if self.from_ else {"shape": tuple(image.shape[1:]), **pixel_statistics(image)}
        if not self.from_:
            derived["eos_id"] = data.tokenizer.token_to_id("<|endoftext|>")
        config = replace(self.model, vocabulary=data.tokenizer.vocab_size, pad_id=data.pad_id or 0, **derived)
        return GradientLearner(self.init_or_load_model(data.folder, config), self.loss, self.optimization, self.steps)

    def loss(self, model: CLIP, batch: Batch) -> tuple[Tensor, Metrics]:
        loss, accuracy = model.loss(batch["image"], batch["text"], batch["same"])
        return loss, {"accuracy": accuracy}

    def batches(self, data: CaptionedImages) -> BatchLoader:
        def prepare(batch: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
            text = self.tokenize(data, batch["caption"])
            image = self.augment(batch["image"].float().div_(255), generator)
            same = torch.tensor([[a == b for b in batch["caption"]] for a in batch["caption"]])
            return {"image": image, "text": text, "same": same}

        columns = Split({"image": data.data.train["image"], "caption": list(data.data.train["caption"])})
        return BatchLoader(columns, self.batch, generator(self.seed, "batches"), prepare)

    def tokenize(self, data: CaptionedImages, texts: Sequence[str]) -> Tensor:
        """Token ids of texts, N × T, cut before the token that ends them, and padded."""
        context, rows = data.context, data.tokenizer.encode_batch(texts)
        rows = [row if len(row) <= context else [*row[: context - 1], row[-1]] for row in rows]
        if data.pad_id is None:
            return pad_rows(rows, data.tokenizer.token_to_id("<|endoftext|>"))
        return torch.tensor([[*row, *[data.pad_id] * (context - len(row))] for row in rows])

    # ------------------------------------------------------------------ evaluation

    def evaluate(self, learner: Learner[CLIP], data: CaptionedImages, split: str) -> dict[str, float]:
        """Loss and retrieval accuracy: from image to caption among all captions, and from caption to image."""
        model, part = learner.model, data.data[split]
        u_ND, w_ND = self.encode_images(model, part["image"]), self.encode_texts(model, data, list(part["caption"]))
        choices = dict.fromkeys([*part["caption"]])
        w_KD = self.encode_texts(model, data, list(choices))
        number = {text: i for i, text in enumerate(choices)}
        true_N = torch.tensor([number[text] for text in part["caption"]])
        correct = (u_ND @ w_KD.T).argmax(1) == true_N
        best_K = (w_KD @ u_ND.T).argmax(1)
        losses = [
            model.contrastive_loss(u, w, torch.tensor([[a == b for b in texts] for a in texts]))[0].item() * len(u)
            for u, w, texts in self.batch_pairs(u_ND, w_ND, list(part["caption"]))
        ]
        measured = {
            "loss": sum(losses) / len(u_ND),
            "text_accuracy": correct.double().mean().item(),
            "image_accuracy": (true_N[best_K] == torch.arange(len(choices))).double().mean().item(),
        }
        if "unseen" in data.data.splits:
            measured["unseen_accuracy"] = self.unseen_accuracy(model, data)
        if "concept" in part and split == "test":
            measured["concept_accuracy"] = self.concept_accuracy(model, data, part)
        return measured

    def batch_pairs(self, u_ND: Tensor, w_ND: Tensor, texts: list[str]) -> Iterator[tuple[Tensor, Tensor, list[str]]]:
        """Yield embeddings and captions in batches of the training size."""
        for start in range(0, len(texts), self.batch):
            rows = slice(start, start + self.batch)
            yield u_ND[rows], w_ND[rows], texts[rows]

    def encode_images(self, model: CLIP, image: Any) -> Tensor:
        """Embed uint8 images in batches, N × D."""
        parts = torch.arange(len(image)).split(EVALUATION_BATCH)
        with torch.no_grad():
            return torch.cat([model.encode_images(image[index].float() / 255) for index in parts])

    def encode_texts(self, model: CLIP, data: CaptionedImages, texts: Sequence[str]) -> Tensor:
        """Embed texts in batches, N × D."""
        parts = [texts[start : start + EVALUATION_BATCH] for start in range(0, len(texts), EVALUATION_BATCH)]
        with torch.no_grad():
            return torch.cat([model.encode_texts(self.tokenize(data, part)) for part in parts])

    def unseen_accuracy(self, model: CLIP, data: CaptionedImages) -> float:
        """Accuracy on color-shape pairs that are not in the training set, among all pairs."""
        part = data.data["unseen"]
        pairs = [f"{color} {shape}" for color in COLORS for shape in SHAPES]
        u_ND = self.encode_images(model, part["image"])
        true = [pairs[label] for label in part["label"].tolist()]
        texts = [
            text.replace(pair, other, 1) for text, pair in zip(part["caption"], true, strict=True) for other in pairs
        ]
        choices = {text: i for i, text in enumerate(dict.fromkeys(texts))}
        w_KD = self.encode_texts(model, data, list(choices))
        w_NPD = w_KD[torch.tensor([choices[text] for text in texts])].view(len(true), len(pairs), -1)
        predicted_N = torch.einsum("nd,npd->np", u_ND, w_NPD).argmax(1)
        return (predicted_N == part["label"]).double().mean().item()

    def concept_accuracy(self, model: CLIP, data: CaptionedImages, part: Split) -> float:
        """Zero-shot accuracy on drawings in an unseen style, among the names of all concepts."""
        w_KD = self.encode_texts(model, data, data.data.classes)
        predicted_N = (self.encode_images(model, part["image"]) @ w_KD.T).argmax(1)
        names = data.data.classes
        correct = [names[g] == names[c] for g, c in zip(predicted_N.tolist(), part["concept"].tolist(), strict=True)]
        return sum(correct) / len(correct)

    # ------------------------------------------------------------------ figures and samples

    def figures(self, learner: Learner[CLIP], data: CaptionedImages) -> Iterator[Figure]:
        model, part = learner.model, data.data.test
        chosen = torch.linspace(0, len(part) - 1, min(len(part), SHOWN)).round().long()
        image, captions = part["image"][chosen], [part["caption"][i] for i in chosen.tolist()]
        logits = model.similarity(self.encode_images(model, image), self.encode_texts(model, data, captions)).detach()
        yield plots.similarity(logits, image.float() / 255, captions, paired=True)
        yield from plots.retrieval(logits, image.float() / 255, captions, paired=True)
        yield from self.activation_figures(model, data, image[:1].float() / 255, captions[0])

    def activation_figures(self, model: CLIP, data: CaptionedImages, image_1CHW: Tensor, text: str) -> Iterator[Figure]:
        """Figures of attention of both encoders for one image and one text."""
        x_1T = self.tokenize(data, [text])
        with torch.no_grad(), watch(model, "*attention.weights") as seen:
            model(image_1CHW, x_1T)
        image_taps = {name: value for name, value in seen.items() if name.startswith("image.blocks.")}
        pooling_taps = {name: value for name, value in seen.items() if name.startswith("image.pool.")}
        text_taps = {name: value for name, value in seen.items() if name.startswith("text.")}
        grid = model.image.patches.grid
        patches = [*(["class"] * len(model.image.patches.tokens)), *map(str, range(1, 1 + grid[0] * grid[1]))]
        if pooling_taps:
            yield rollout.pooling_attention(pooling_taps, image_1CHW[0], grid).of("image encoder")
        else:
            yield rollout.rollout_image(image_taps, image_1CHW[0], grid).of("image encoder")
            yield rollout.class_attention(image_taps, image_1CHW[0], grid).of("image encoder")
        yield attention.attention_grid(image_taps, patches).of("image encoder")
        yield attention.attention_grid(text_taps, data.tokenizer.tokens(x_1T[0].tolist())).of("text encoder")

    def compare_with_others(
        self, model: CLIP, data: CaptionedImages, image_1CHW: Tensor, text: str
    ) -> tuple[float, list[Figure]]:
        """Return the cosine similarity of an image and a text, with figures among others of the test split."""
        images, texts = [image_1CHW], [text]
        if "test" in data.data.splits:
            part = data.data.test
            chosen = torch.linspace(0, len(part) - 1, min(len(part), OTHERS)).round().long()
            others = part["image"][chosen].float() / 255
            images.append(others[(others != image_1CHW).flatten(1).any(1)])
            texts += [other for other in dict.fromkeys(part["caption"][i] for i in chosen.tolist()) if other != text]
        image_BCHW = torch.cat(images)
        with torch.no_grad():
            cosine_BK = model.encode_images(image_BCHW) @ self.encode_texts(model, data, texts).T
        shown = plots.retrieval(cosine_BK, image_BCHW, texts, paired=True, some=1, best=8)
        figures = []
        for figure, what, cosine_N in zip(shown, ("image", "text"), (cosine_BK[:, 0], cosine_BK[0]), strict=True):
            rank = 1 + int((cosine_N > cosine_N[0]).sum())
            caption = f"Top matches by cosine similarity; the inspected {what} (green) ranks {rank} of {len(cosine_N)}."
            figures.append(replace(figure, caption=caption))
        return cosine_BK[0, 0].item(), figures

    def _item(self, data: CaptionedImages, item: int) -> tuple[Tensor, str]:
        part = data.data.test
        check_item(item, len(part))
        return part["image"][torch.tensor([item])].float() / 255, part["caption"][item]

    def inspect(self, model: CLIP, data: CaptionedImages, args: CLIPInspectArgs) -> tuple[str, list[Figure]]:
        if not data.data.splits and not (args.image and args.text):
            raise EngramError(f"{data.info.name} comes without data: give it an --image and a --text.")
        image, text = (torch.empty(0), "") if args.image and args.text else self._item(data, args.item)
        image = load_image(args.image, model.config.shape, data.preprocess) if args.image else image
        text = args.text or text
        cosine, among = self.compare_with_others(model, data, image, text)
        description = f'{args.image or f"test image {args.item}"} and "{text}", cosine similarity {cosine:.2f}'
        return description, [*among, *self.activation_figures(model, data, image, text)]

    def trace(self, model: CLIP, data: CaptionedImages, item: int) -> str:
        image, text = self._item(data, item)
        model(image, self.tokenize(data, [text]))
        return f'test image {item}, "{text}"'

    def sample(self, learner: Learner[CLIP], data: CaptionedImages, request: SampleRequest) -> Sample:
        """Zero-shot classification: the most probable labels of each image."""
        model, args = learner.model, request.args
        if args.image:
            image, truth = load_image(args.image, model.config.shape, data.preprocess), [args.image]
        else:
            index = choose_items(request.count, len(data.data.test), request.generator)
            image = data.data.test["image"][index].float() / 255
            truth = [data.data.test["caption"][i] for i in index.tolist()]
        labels = args.labels or data.captions
        if not labels:
            raise EngramError("There are no captions to choose from: give some --labels.")
        p_BK = model.probabilities(model.similarity(model.encode_images(image), self.encode_texts(model, data, labels)))
        best = p_BK.topk(min(3, len(labels)))
        lines, rows = [], []
        for name, places, ps in zip(truth, best.indices.tolist(), best.values.tolist(), strict=True):
            found = [{"image": name, "label": labels[i], "probability": p} for i, p in zip(places, ps, strict=True)]
            lines.append(f"{name}:  " + "   ".join(f"{row['label']} {row['probability']:.0%}" for row in found))
            rows += found
        arrays = {"image": image, "probability": best.values, "label": best.indices}
        return Sample(arrays, "\n".join(lines), images.grid(image), rows=rows)
