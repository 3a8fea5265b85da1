"""What everything else stands on: taps, learners, the registry of recipes, errors and seeding."""
