"""The symmetries of any network, found from its differential and named from its graph."""
