"""The equivalent smaller network."""
