"""PyTorch networks: read from modules, computed in JAX, written back."""
