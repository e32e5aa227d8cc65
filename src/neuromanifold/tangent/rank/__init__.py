"""The Jacobian and its rank, numerical with its evidence or exact with its certificate."""
