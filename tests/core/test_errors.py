"""Sentences of errors."""

import pytest

from engram.core.errors import with_article


@pytest.mark.parametrize(
    "phrase", ["a GAN", "an MLP", "an RBM", "a VAE", "an LSTM", "a ViT", "a LIF", "an Autoencoder", "a ResNet"]
)
def test_an_article_follows_the_sound(phrase):
    assert with_article(phrase.split()[1]) == phrase
