"""Beyond the papers: what their quantities say of real tasks, and beside those of other theories."""
