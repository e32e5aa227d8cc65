"""Networks of Flax, Equinox and Haiku."""
