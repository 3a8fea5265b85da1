"""Training loop, learners, optimizers, run folders and distributed training."""
