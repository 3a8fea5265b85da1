"""One loop for everything that learns, and the folder in which a run leaves all that it has."""
