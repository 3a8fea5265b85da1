"""Chat: messages as a prompt by a checkpoint's template (Jinja's immutable sandbox), and replies.

chat = Chat(engram.load("smollm2"))
for piece in chat.reply("Who was Romulus?"):
    print(piece, end="")
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any, NoReturn

import torch
from jinja2 import Template, TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from engram.core.errors import EngramError
from engram.generation.generate import stream
from engram.generation.sampling import SamplingParams, decode_stream

Message = Mapping[str, str]


def render_chat(
    template: str, messages: Sequence[Message], *, add_generation_prompt: bool = True, **variables: Any
) -> str:
    """Render messages (role and content) by a chat template, as transformers does."""
    try:
        text: str = compile_template(template).render(
            messages=messages, add_generation_prompt=add_generation_prompt, **variables
        )
    except (TemplateError, TypeError, ValueError, KeyError, OverflowError) as error:
        raise EngramError(f"The chat template cannot be rendered: {str(error).rstrip('.')}.") from None
    return text


@cache
def compile_template(source: str) -> Template:
    """Compile a template in a sandbox, which can neither change what it is given nor call what is unsafe."""
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = to_json
    environment.globals |= {"raise_exception": refuse, "strftime_now": lambda form: datetime.now().strftime(form)}
    try:
        return environment.from_string(source)
    except TemplateError as error:
        raise EngramError(f"The chat template cannot be read: {str(error).rstrip('.')}.") from None


def to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    """JSON without the HTML escapes of Jinja's own filter."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


def refuse(message: str) -> NoReturn:
    """Let a template refuse its messages."""
    raise TemplateError(message)


@dataclass
class Chat:
    """A conversation with a language model that has a chat template."""

    model: Any
    params: SamplingParams = SamplingParams()
    max_new_tokens: int = 512
    stop: tuple[str, ...] = ()
    generator: torch.Generator | None = None
    messages: list[dict[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.model.tokenizer.chat_template:
            raise EngramError("This model has no chat template: it continues texts, with `engram sample`.")
        self.decoder = self.model.make_decoder()

    def set_system(self, text: str) -> None:
        """Set or replace the system message; "" removes it."""
        rest = [message for message in self.messages if message["role"] != "system"]
        self.messages = [{"role": "system", "content": text}, *rest] if text else rest

    def reply(self, text: str, on_forget: Callable[[int], None] = lambda count: None) -> Iterator[str]:
        """Yield the reply to a message, piece by piece; `on_forget` hears how many messages no longer fit.

        What has been said so far is kept, also if the reply is not read to its end.
        """
        self.messages.append({"role": "user", "content": text})
        ids = self.fit(on_forget)
        room = min(self.max_new_tokens, self.model.config.context - len(ids))
        eos_id, pieces = self.model.tokenizer.eos_id, list[str]()
        tokens = stream(
            self.model, ids, room, self.params, generator=self.generator, eos_id=eos_id, decoder=self.decoder
        )
        try:
            for piece in decode_stream(self.model.tokenizer.decode, tokens, self.stop):
                pieces.append(piece)
                yield piece
        finally:
            self.messages.append({"role": "assistant", "content": "".join(pieces)})

    def fit(self, on_forget: Callable[[int], None]) -> list[int]:
        """Return the prompt, without the oldest messages where it leaves no room for a reply."""
        context, before = self.model.config.context, len(self.messages)
        room = min(self.max_new_tokens, context // 4)
        while len(ids := self.prompt()) + room > context:
            first = 1 if self.messages[0]["role"] == "system" else 0
            if len(self.messages) <= first + 1:
                self.messages.pop()
                raise EngramError(f"The message has {len(ids)} tokens, which is too much for a context of {context}.")
            del self.messages[first : first + 2]  # a question with its answer
        if len(self.messages) < before:
            on_forget(before - len(self.messages))
        return ids

    def prompt(self) -> list[int]:
        """Return the tokens of the conversation, up to where the model is to speak."""
        tokenizer = self.model.tokenizer
        text = render_chat(
            tokenizer.chat_template, self.messages, bos_token=tokenizer.bos_token, eos_token=tokenizer.eos_token
        )
        ids: list[int] = tokenizer.encode(text, add_special_tokens=False)
        return ids
