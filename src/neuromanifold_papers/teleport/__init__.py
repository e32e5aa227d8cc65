"""teleport: parameter-space symmetries seen through the tangent kernel."""
