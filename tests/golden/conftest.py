"""What tests beside transformers share: no gradients, and a transformers that says nothing."""

import logging

import pytest
import torch
import transformers


@pytest.fixture
def no_gradients():
    with torch.no_grad():
        yield


@pytest.fixture
def quiet():
    torch.manual_seed(0)
    transformers.utils.logging.set_verbosity(logging.CRITICAL)
    transformers.utils.logging.disable_progress_bar()
