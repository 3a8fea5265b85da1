"""Base of everything else: configuration, recipes, registry, learners, taps, errors, seeding."""
