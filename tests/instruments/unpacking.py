"""Arrays of an answer, as the page unpacks them."""

import base64

import numpy as np
import torch
from torch import Tensor


def unpacked(array: dict) -> Tensor:
    return torch.from_numpy(np.frombuffer(base64.b64decode(array["f32"]), "<f4").reshape(array["shape"]).copy())
