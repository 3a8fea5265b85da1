"""(model, data) → figure: one file per kind of view."""
