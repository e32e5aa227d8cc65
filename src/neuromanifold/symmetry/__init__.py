"""Groups acting on parameters: actions, generators, orbits, the dimension account, conserved quantities, teleportation, reduction."""

from neuromanifold.symmetry.account import DimensionAccount, dimension_account
from neuromanifold.symmetry.base import AbstractGroup, Composition, ContinuousGroup, Element
from neuromanifold.symmetry.conserved import ConservedQuantities, conserved, conserved_quantities
from neuromanifold.symmetry.dense import Dense
from neuromanifold.symmetry.equivalence import HiddenEquivalence, hidden_equivalence
from neuromanifold.symmetry.hadamard import (
    Extended,
    ExtendedModel,
    HadamardGroup,
    MatrixGroup,
    Reparametrization,
    TransformedModel,
)
from neuromanifold.symmetry.linear import AffineGroup, GeneralLinearGroup, OrthogonalGroup
from neuromanifold.symmetry.monomial import Monomial
from neuromanifold.symmetry.permutation import PermutationGroup
from neuromanifold.symmetry.product import SymmetryGroup, symmetry_group
from neuromanifold.symmetry.scaling import ScalingGroup
from neuromanifold.symmetry.sign import SignedPermutationGroup, SignGroup
