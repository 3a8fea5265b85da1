from .autoencoder.model import Autoencoder as Autoencoder
from .diffusion.model import Diffusion as Diffusion
from .gan.model import GAN as GAN
from .vae.model import VAE as VAE
