"""engram: every neural network of a full course, to run, to read and to look inside.

The names of `__init__.pyi` are imported when they are first used, so that `import engram` is quick. Each part of the
course does the same: `from engram.memory import RBM`.
"""

from typing import Any

import lazy_loader

from engram.core.fit import install as _install

__version__ = "0.1.0"
PARTS = ("foundations", "neurons", "memory", "sequences", "generative", "robustness", "transformers")
"""the parts of the course, in its order: packages of systems"""

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def _run(*args: Any, **settings: Any) -> Any:
    """Call `run` of engram/api.py, which is imported when it is first needed."""
    from engram.api import run

    return run(*args, **settings)


_install(_run)
