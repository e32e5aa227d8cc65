import pytest


@pytest.fixture(scope="session", autouse=True)
def _names_in_docstring_examples(doctest_namespace: dict[str, object]) -> None:
    import jax
    import jax.numpy as jnp
    import numpy as np

    import neuromanifold as nm

    doctest_namespace.update(nm=nm, jax=jax, jnp=jnp, np=np)
