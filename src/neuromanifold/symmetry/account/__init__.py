"""Where the parameters of a network went."""
