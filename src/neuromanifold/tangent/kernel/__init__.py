"""The tangent kernel: dense, blocked, as an operator, tile by tile on a disk."""
