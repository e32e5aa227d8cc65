"""riemann: linear convolutional networks as Riemannian flow in function space."""
