"""Chat: templates as transformers renders them, the sandbox, a context that slides, and the terminal."""

import io
import json

import pytest
import tokenizers
import torch
import transformers

import engram as library
from engram.core.errors import EngramError
from engram.data.tokenizer import Tokenizer
from engram.generation.generate import stream
from engram.generation.sampling import GREEDY
from engram.hub.chat import Chat, render_chat

SYSTEM = """{% if messages[0].role == 'system' %}{% set system = messages[0].content %}
{% set messages = messages[1:] %}{% endif %}"""
TEMPLATES = {
    "chatml": """{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] | trim + '<|im_end|>\n' }}
{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}""",
    "llama 2": SYSTEM + """{% for m in messages %}
{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}
{% if m.role == 'user' %}
{{ bos_token + '[INST] ' + ('<<SYS>>\n' + system + '\n<</SYS>>\n\n' if loop.first and system is defined else '') }}
{{- m.content + ' [/INST]' }}{% else %}{{ ' ' + m.content + ' ' + eos_token }}{% endif %}{% endfor %}""",
    "llama 3": """{{- bos_token }}{%- for m in messages %}
{{- '<|start_header_id|>' + m['role'] + '<|end_header_id|>\n\n' + m['content'] | trim + '<|eot_id|>' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}""",
    "mistral": SYSTEM + """{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}
{{ '[INST] ' ~ (system ~ '\n\n' if loop.last and system is defined else '') ~ m.content ~ '[/INST]' }}
{%- else %}{{ ' ' ~ m.content ~ eos_token }}{% endif %}{% endfor %}""",
    "gemma": """{{ bos_token }}{% for m in messages %}{% set role = 'model' if m.role == 'assistant' else m.role %}
{{ '<start_of_turn>' + role + '\n' + m.content | trim + '<end_of_turn>\n' }}{% endfor %}
{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}""",
    "phi": """{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content + '<|end|>\n' }}{% endfor %}
{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}""",
    "vicuna": SYSTEM + """{{ system | default('A chat.') }} {% for m in messages %}
{{- {'user': 'USER: ', 'assistant': 'ASSISTANT: '}[m.role] ~ m.content ~ (' ' if m.role == 'user' else eos_token) }}
{%- endfor %}""",
    "as json": "{{ messages | tojson }}|{{ messages[0] | tojson(indent=2) }}|{{ {'é': '<&>'} | tojson }}",
    "control of loops": """{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}
{% if loop.index > 3 %}{% break %}{% endif %}{{ loop.index }}{{ m.content }}{% endfor %}""",
    "names and macros": """{% set ns = namespace(count=0) %}
{% macro say(m) %}[{{ m.role | upper }}] {{ m.content }}{% endmacro %}
{% for m in messages if m.role != 'system' %}{% set ns.count = ns.count + 1 %}{{ say(m) }}
{% endfor %}{{ ns.count }} {{ messages | length }} {{ messages | map(attribute='role') | join(',') }}""",
}  # fmt: skip
TALKS = [
    [{"role": "user", "content": " Who are you? "}],
    [
        {"role": "system", "content": "Be \"brief\" & kind."},
        {"role": "user", "content": "Hällo <b>\n"},
        {"role": "assistant", "content": "Hi."},
        {"role": "user", "content": "{{ 1 + 1 }}"},
    ],
]  # fmt: skip
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}


@pytest.mark.parametrize("prompted", [True, False])
@pytest.mark.parametrize("talk", TALKS)
@pytest.mark.parametrize("name", TEMPLATES)
def test_templates_are_rendered_as_by_transformers(name, talk, prompted):
    theirs = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer(tokenizers.models.BPE()), chat_template=TEMPLATES[name], **SPECIAL
    )
    expected = theirs.apply_chat_template(talk, tokenize=False, add_generation_prompt=prompted)
    assert render_chat(TEMPLATES[name], talk, add_generation_prompt=prompted, **SPECIAL) == expected


@pytest.mark.parametrize(("template", "reason"), [
    ("{% for m in", "cannot be read"),
    ("{{ raise_exception('no system message') }}", "no system message"),
    ("{{ messages.append(1) }}", "cannot be rendered"),
    ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "cannot be rendered"),
    ("{{ messages[9].content.x }}", "cannot be rendered"),
    ("{% for i in range(10 ** 9) %}x{% endfor %}", "cannot be rendered"),
    ("{{ messages | tojson(nonsense=1) }}", "cannot be rendered"),
])  # fmt: skip
def test_hostile_and_broken_templates_are_refused(template, reason):
    with pytest.raises(EngramError, match=reason):
        render_chat(template, TALKS[0])


def test_a_folder_says_its_template_and_its_special_tokens(tmp_path):
    theirs = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer(tokenizers.models.WordLevel({"<s>": 0, "</s>": 1, "a": 2}, "a")),
        chat_template=TEMPLATES["phi"], **SPECIAL,
    )  # fmt: skip
    theirs.save_pretrained(tmp_path)
    found = Tokenizer.load(tmp_path)
    assert (found.bos_token, found.eos_token, found.chat_template) == ("<s>", "</s>", TEMPLATES["phi"])
    assert found.eos_id == 1
    (tmp_path / "chat_template.jinja").unlink(missing_ok=True)
    about = json.loads((tmp_path / "tokenizer_config.json").read_text())
    named = [{"name": "default", "template": "{{ 1 }}"}, {"name": "tool_use", "template": "{{ 2 }}"}]
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({**about, "eos_token": {"content": "a"}, "chat_template": named})
    )
    found = Tokenizer.load(tmp_path)
    assert (found.eos_id, found.chat_template) == (2, "{{ 1 }}")


# ---------------------------------------------------------------------- conversations

PLAIN = "{% for m in messages %}{{ m.content }}.{% endfor %}"


@pytest.fixture
def model(finished):
    model = library.load(finished("gpt"))
    model.tokenizer.chat_template = PLAIN
    return model


def test_a_reply_continues_the_rendered_conversation(model):
    """With the cache of the reply before, the same as without."""
    chat = Chat(model, GREEDY, max_new_tokens=4)
    for text in ("my", "lo"):
        messages = [*chat.messages, {"role": "user", "content": text}]
        ids = model.tokenizer.encode(render_chat(PLAIN, messages))
        said = "".join(chat.reply(text))
        assert said == model.tokenizer.decode(list(stream(model, ids, min(4, 16 - len(ids)), GREEDY)))
        assert chat.messages == [*messages, {"role": "assistant", "content": said}]


def test_what_no_longer_fits_is_forgotten_and_said(model):
    chat, forgotten = Chat(model, GREEDY, max_new_tokens=4), list[int]()
    chat.set_system("k")
    for _ in range(3):
        list(chat.reply("hi", forgotten.append))
    assert forgotten
    assert chat.messages[0] == {"role": "system", "content": "k"}
    assert [message["role"] for message in chat.messages[1:]] == ["user", "assistant"]
    before = list(chat.messages)
    with pytest.raises(EngramError, match="too much for a context of 16"):
        list(chat.reply("a very long message indeed"))
    assert chat.messages == before[:1]
    chat.set_system("")
    assert chat.messages == []


def test_a_reply_that_is_broken_off_is_kept(model):
    chat = Chat(model, GREEDY, max_new_tokens=4)
    reply = chat.reply("hi")
    first = next(reply)
    reply.close()
    assert chat.messages[-1] == {"role": "assistant", "content": first}


def test_a_model_without_a_template_does_not_chat(finished, refused):
    assert "has no chat template" in refused("chat", finished("gpt"))
    assert "does not write text" in refused("chat", finished("mlp"))
    assert "begins with a model" in refused("chat", "--system", "x")
    assert "must be at least 1" in refused("chat", "smollm2", "--max-new-tokens", 0)


@pytest.mark.download
def test_smollm2_chats_in_the_terminal(engram, tmp_path, monkeypatch):
    lines = ["What is the capital of Germany?", "And of Italy?", f"/save {tmp_path / 'talk.json'}",
             f"/save {tmp_path / 'talk.json'}", "/save", "/system Be brief.", "/reset", "/help", "", "/exit",
             "never said"]  # fmt: skip
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(lines)))
    answer = engram("chat", "smollm2", "--temperature", 0, "--max-new-tokens", 20)
    assert answer.code == 0, answer.err
    said = answer.out.splitlines()
    assert said[:2] == ["The capital of Germany is Berlin.", "The capital of Italy is Rome."]
    assert "is there already" in said[3]
    assert said[4:7] == [
        "(Name a file: /save conversation.json.)", "(The system message is set.)", "(The conversation begins anew.)",
    ]  # fmt: skip
    assert "/exit" in answer.out
    talk = json.loads((tmp_path / "talk.json").read_text())
    assert [message["role"] for message in talk] == ["user", "assistant"] * 2
    ours = library.load("smollm2")
    assert render_chat(ours.tokenizer.chat_template, talk[:1]).startswith("<|im_start|>system\nYou are a helpful AI")
    assert torch.tensor(ours.tokenizer.encode("<|im_end|>")).tolist() == [ours.tokenizer.eos_id]


def test_help_lists_the_flags_of_sampling(engram):
    shown = engram("chat", "--help").out
    assert all(flag in shown for flag in ("--temperature", "--top-p", "--system", "--max-new-tokens", "/save FILE"))
