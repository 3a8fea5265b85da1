"""engram chat: a conversation with a language model in the terminal."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge

from engram.cli.catalog import catalog
from engram.cli.flags import parse_settings
from engram.cli.help import print_help, wants_help
from engram.core.config import Settings, controls
from engram.core.errors import EngramError, with_article

SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
HELP = """/system TEXT   set the system message, or remove it
/save FILE     save the conversation as JSON
/reset         forget the conversation, but for the system message
/help          show this
/exit          end, as Ctrl-D does; Ctrl-C ends a reply"""


@dataclass(frozen=True, kw_only=True)
class ChatOptions(Settings):
    """Flags of `engram chat` beside those of sampling."""

    system: str = ""
    """system message: how the model is to answer"""
    max_new_tokens: Annotated[int, Ge(1)] = 512
    """largest number of tokens of a reply"""
    stop: tuple[str, ...] = ()
    """stop strings, which end a reply"""
    bits: Literal[32, 8, 4] = 32
    """bits of the weights: 8 or 4 quantizes them, which is faster and smaller; 32 takes them as they are"""
    cache_bits: Literal[32, 16, 8] = 32
    """bits of the keys and values in the KV cache: 16 or 8 makes it smaller"""
    seed: int = 0
    """seed of the random numbers"""


def command(argv: Sequence[str]) -> int:
    if not argv or argv[0].startswith("-") or wants_help(argv):
        about = f"Chat with a model: a checkpoint with a chat template, or a name of `engram models`.\n\n{HELP}"
        sampling = [one for one in catalog()["gpt"]["sample"] if one["name"] in SAMPLING]  # without importing torch
        print_help("engram chat MODEL [flags]", about, ("flags", controls(ChatOptions())), ("sampling", sampling))
        if argv and not wants_help(argv):
            raise EngramError(f"engram chat begins with a model, such as smollm2, not with {argv[0]}.")
        return 0
    from engram.generation.sampling import SamplingParams

    source, *flags = argv
    groups: dict[str, Settings] = {"options": ChatOptions(), "sampling": SamplingParams()}
    parsed = parse_settings(groups, flags, f"engram chat {source}")
    return converse(open_chat(source, parsed["options"], parsed["sampling"]))


def open_chat(source: str, options: ChatOptions, params: Any) -> Any:
    """Load the model and begin a conversation."""
    from engram.core.seeding import generator
    from engram.generation.quantization import quantize
    from engram.hub.chat import Chat
    from engram.hub.load import load

    model: Any = load(source, quantized=True)
    if not hasattr(model, "make_decoder") or model.tokenizer is None:
        raise EngramError(f"{source} holds {with_article(type(model).__name__)}, which does not write text.")
    model = model if options.bits == 32 else quantize(model, options.bits)
    model.cache_bits = options.cache_bits
    chat = Chat(model, params, options.max_new_tokens, options.stop, generator(options.seed, "sample"))
    chat.set_system(options.system)
    return chat


def converse(chat: Any) -> int:
    """Read messages and commands line by line until the input ends, and print the replies as they come."""
    is_terminal = sys.stdin.isatty()
    if is_terminal:
        print("Type a message, or /help. Ctrl-D ends.")
    while (line := read_line("> " if is_terminal else "")) is not None:
        if line.startswith("/"):
            if not run_command(chat, line):
                return 0
        elif line.strip():
            print_reply(chat, line)
    return 0


def read_line(prompt: str) -> str | None:
    """Read a line; None where the input ends."""
    try:
        return input(prompt)
    except EOFError:
        print()
        return None


def print_reply(chat: Any, line: str) -> None:
    """Print the reply to a message; Ctrl-C ends it, and what was said is kept."""

    def forget(count: int) -> None:
        print(f"({count} messages no longer fit into the context, and are forgotten.)")

    try:
        for piece in chat.reply(line, forget):
            print(piece, end="", flush=True)
    except KeyboardInterrupt:
        pass
    except EngramError as error:
        print(f"({error})", end="")
    print()


def run_command(chat: Any, line: str) -> bool:
    """Run a command; return whether the conversation goes on."""
    name, _, rest = line.partition(" ")
    if name == "/exit":
        return False
    if name == "/system":
        chat.set_system(rest.strip())
        print("(The system message is set.)" if rest.strip() else "(The system message is removed.)")
    elif name == "/reset":
        chat.messages = [message for message in chat.messages if message["role"] == "system"]
        print("(The conversation begins anew.)")
    elif name == "/save":
        print(f"({save(chat, Path(rest.strip()))})")
    else:
        print(HELP)
    return True


def save(chat: Any, path: Path) -> str:
    """Save the conversation as JSON, and return what happened."""
    if path == Path():
        return "Name a file: /save conversation.json."
    if path.exists():
        return f"{path} is there already: name another file."
    try:
        path.write_text(json.dumps(chat.messages, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        return f"{path} cannot be written: {error.strerror or error}."
    return f"{len(chat.messages)} messages are in {path}."
