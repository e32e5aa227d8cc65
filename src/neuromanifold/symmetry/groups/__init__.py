"""Groups acting on parameters: elements, generators, products."""
