"""The lab: a local web page for training, plots and instruments of every system."""
