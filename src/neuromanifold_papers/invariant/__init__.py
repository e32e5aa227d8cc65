"""invariant: structural invariant manifolds of gradient flow."""
