"""Transformers: autoencoder, variational autoencoder and restricted Boltzmann machine."""

from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from engram.core.seeding import generator
from engram.data.dataset import Split
from engram.data.loaders import BatchLoader
from engram.estimators.fitting import Array, compute, draw_seed, fit_recipe, in_memory, steps_of, train
from engram.generative.autoencoder import model as autoencoder
from engram.generative.autoencoder.recipe import AutoencoderRecipe
from engram.generative.vae import model as vae
from engram.generative.vae.recipe import VAERecipe
from engram.memory.rbm import model as rbm
from engram.memory.rbm.learner import ContrastiveDivergence, ContrastiveDivergenceConfig
from engram.nn.bernoulli import sample_bernoulli
from engram.training.optimizer import OptimizerConfig


class _LatentModel(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Rows to latents and back; rows are standardized before the encoder."""

    def __init__(
        self,
        *,
        latent_dim: int = 2,
        hidden: tuple[int, ...] = (64, 32),
        epochs: int = 200,
        batch: int = 64,
        lr: float = 3e-3,
        weight_decay: float = 1e-4,
        random_state: Any = None,
    ) -> None:
        self.latent_dim = latent_dim
        self.hidden = hidden
        self.epochs = epochs
        self.batch = batch
        self.lr = lr
        self.weight_decay = weight_decay
        self.random_state = random_state

    def _recipe(self, **settings: Any) -> Any:
        """Return the recipe with these settings."""
        raise NotImplementedError

    def fit(self, X: Any, y: None = None) -> Self:
        """Train on rows X, N × F."""
        X = validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
        self.scaler_ = StandardScaler().fit(X)
        optimization = OptimizerConfig(lr=self.lr, weight_decay=self.weight_decay, warmup=0.0)
        recipe = self._recipe(
            steps=steps_of(self.epochs, len(X), self.batch),
            batch=self.batch,
            seed=draw_seed(self.random_state),
            optimization=optimization,
        )
        self.model_ = fit_recipe(recipe, in_memory({"point": torch.tensor(self.scaler_.transform(X))}))
        return self

    def transform(self, X: Any) -> Array:
        """Latents of rows, N × latent_dim."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return compute(self.model_, "encode", self.scaler_.transform(X))

    def inverse_transform(self, Z: Any) -> Array:
        """Rows of latents, N × F."""
        check_is_fitted(self)
        return self.scaler_.inverse_transform(compute(self.model_, "decode", np.atleast_2d(np.asarray(Z))))

    def sample(self, count: int = 1) -> Array:
        """Draw new rows, count × F."""
        check_is_fitted(self)
        latents = self.model_.sample_latents(count, generator(draw_seed(self.random_state), "samples"))
        return self.inverse_transform(latents.numpy())

    @property
    def _n_features_out(self) -> int:
        return self.latent_dim


class Autoencoder(_LatentModel):
    """Autoencoder: compress rows to a small latent and reconstruct them (dense layers).

    Parameters
    ----------
    latent_dim : dimensions of the latent
    hidden : units of the encoder's layers; the decoder has them in reverse order
    epochs, batch, lr, weight_decay, random_state : as of `MLPClassifier`

    Attributes
    ----------
    model_ : the `engram.Autoencoder`, which takes rows that `scaler_` has standardized
    """

    def _recipe(self, **settings: Any) -> AutoencoderRecipe:
        model = autoencoder.Autoencoder.Config(latent_dim=self.latent_dim, hidden=tuple(self.hidden))
        return AutoencoderRecipe(model=model, **settings)


class VAE(_LatentModel):
    """Variational autoencoder with a Gaussian likelihood.

    Latents are near a standard normal, so that rows can be sampled.

    Parameters
    ----------
    latent_dim : dimensions of the latent
    hidden : units of the encoder's layers; the decoder has them in reverse order
    beta : weight of the KL term; 1 gives the ELBO
    sigma : standard deviation of the Gaussian likelihood, in standard deviations of a column
    epochs, batch, lr, weight_decay, random_state : as of `MLPClassifier`

    Attributes
    ----------
    model_ : the `engram.VAE`, which takes rows that `scaler_` has standardized
    """

    def __init__(
        self,
        *,
        latent_dim: int = 2,
        hidden: tuple[int, ...] = (64, 32),
        beta: float = 1.0,
        sigma: float = 0.5,
        epochs: int = 200,
        batch: int = 64,
        lr: float = 3e-3,
        weight_decay: float = 1e-4,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            latent_dim=latent_dim, hidden=hidden, epochs=epochs, batch=batch, lr=lr, weight_decay=weight_decay,
            random_state=random_state,
        )  # fmt: skip
        self.beta = beta
        self.sigma = sigma

    def _recipe(self, **settings: Any) -> VAERecipe:
        model = vae.VAE.Config(latent_dim=self.latent_dim, hidden=tuple(self.hidden), sigma=self.sigma)
        return VAERecipe(model=model, beta=self.beta, **settings)

    def score_samples(self, X: Any, samples: int = 50) -> Array:
        """Importance-weighted bound of log p(x) in nats (IWAE), N."""
        check_is_fitted(self)
        x = torch.tensor(self.scaler_.transform(validate_data(self, X, dtype=np.float64, reset=False)))
        seed = draw_seed(self.random_state)
        with torch.no_grad():  # each row with the same noise, whatever rows come with it
            bound = [self.model_.iwae_bound(row, samples, generator(seed, "bound")) for row in x.split(1)]
        return torch.cat(bound).numpy() - np.log(self.scaler_.scale_).sum()  # density of rows as they were given


class RBM(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Restricted Boltzmann machine, trained by (persistent) contrastive divergence.

    Inputs are probabilities of binary units, from 0 to 1, and are binarized at random in every step; what is outside
    counts as 0 or 1.

    Parameters
    ----------
    hidden : hidden units
    gibbs_steps : Gibbs steps per update (k in CD-k)
    persistent : keep the fantasy particles between updates
    centered : centered updates
    epochs, batch, random_state : as of `MLPClassifier`
    lr : initial learning rate, which decays linearly to 0; `partial_fit` keeps it

    Attributes
    ----------
    model_ : the `engram.RBM`, in 64 bits
    """

    def __init__(
        self,
        *,
        hidden: int = 64,
        gibbs_steps: int = 1,
        persistent: bool = True,
        centered: bool = True,
        epochs: int = 30,
        batch: int = 10,
        lr: float = 0.1,
        random_state: Any = None,
    ) -> None:
        self.hidden = hidden
        self.gibbs_steps = gibbs_steps
        self.persistent = persistent
        self.centered = centered
        self.epochs = epochs
        self.batch = batch
        self.lr = lr
        self.random_state = random_state

    def fit(self, X: Any, y: None = None) -> Self:
        """Train on rows X, N × V."""
        X = validate_data(self, X, dtype=np.float32)
        self._initialize(X)
        return self._train(X, self.epochs, decay=True)

    def partial_fit(self, X: Any, y: None = None) -> Self:
        """Train on rows for one more epoch, at a constant learning rate."""
        fresh = not hasattr(self, "model_")
        X = validate_data(self, X, dtype=np.float32, reset=fresh)
        if fresh:
            self._initialize(X)
        return self._train(X, 1, decay=False)

    def _initialize(self, X: Array) -> None:
        self._seed = draw_seed(self.random_state)
        self._state: dict[str, Any] = {}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._seed)
            self.model_ = rbm.RBM(rbm.RBM.Config(visible=X.shape[1], hidden=self.hidden))
            self.model_.initialize(torch.tensor(X).clamp(0, 1).mean(0))

    def _train(self, X: Array, epochs: int, decay: bool) -> Self:
        batch, steps = min(self.batch, len(X)), steps_of(epochs, len(X), self.batch)
        config = ContrastiveDivergenceConfig(
            gibbs_steps=self.gibbs_steps, persistent=self.persistent, centered=self.centered, lr=self.lr,
            lr_decay=decay,
        )  # fmt: skip
        learner = ContrastiveDivergence(self.model_.float(), config, batch, steps, generator(self._seed, "gibbs"))
        if self._state:
            learner.load_state_dict({**self._state, "done": 0})
        columns = Split({"visible": torch.tensor(X)})

        def binarize(rows: dict[str, Tensor], random: torch.Generator) -> dict[str, Tensor]:
            return {"visible": sample_bernoulli(rows["visible"], random)}

        done = self._state.get("done", 0)
        train(learner, BatchLoader(columns, batch, generator(self._seed, f"batches {done}"), binarize), steps)
        self._state = {**learner.state_dict(), "done": done + steps}
        self.model_.double()
        return self

    def _visible(self, X: Any) -> Array:
        check_is_fitted(self)
        return validate_data(self, X, dtype=np.float64, reset=False)

    def transform(self, X: Any) -> Array:
        """Probabilities of the hidden units, N × hidden."""
        return compute(self.model_, "prob_hidden", self._visible(X))

    def score_samples(self, X: Any) -> Array:
        """Log-probability of rows up to a constant: minus their free energy, N."""
        return -compute(self.model_, "free_energy", self._visible(X))

    def sample(self, count: int = 1, steps: int = 1000) -> Array:
        """Probabilities of the visible units after so many Gibbs steps from noise, count × V."""
        check_is_fitted(self)
        model = rbm.RBM(self.model_.config)
        model.load_state_dict(self.model_.state_dict())
        return model.sample(count, steps, generator(draw_seed(self.random_state), "samples")).numpy()

    @property
    def _n_features_out(self) -> int:
        return self.hidden
