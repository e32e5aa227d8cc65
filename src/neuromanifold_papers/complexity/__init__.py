"""complexity: the empirical tangent kernel's rank tracks the complexity of the task."""
