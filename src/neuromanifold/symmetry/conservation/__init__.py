"""What gradient flow keeps because of a symmetry, and motion along orbits."""
