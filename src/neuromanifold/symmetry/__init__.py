"""Groups acting on parameters: actions, generators, orbits, the dimension account, conserved quantities, teleportation, reduction."""

from neuromanifold.symmetry.account import DimensionAccount, dimension_account
from neuromanifold.symmetry.balances import Balance, Scalings, channel_scalings
from neuromanifold.symmetry.base import AbstractGroup, Composition, ContinuousGroup, Element, LieGroup
from neuromanifold.symmetry.batch import BatchGroup
from neuromanifold.symmetry.conserved import (
    ConservedQuantities,
    conserved_quantities,
    conserved_quantities_probe,
)
from neuromanifold.symmetry.dense import Dense
from neuromanifold.symmetry.discover import Discovery, discover
from neuromanifold.symmetry.equivalence import HiddenEquivalence, hidden_equivalence
from neuromanifold.symmetry.filters import FilterScaling, FilterScalingGroup
from neuromanifold.symmetry.flow import Flow, FlowGroup
from neuromanifold.symmetry.hadamard import (
    Extended,
    ExtendedModel,
    HadamardGroup,
    MatrixGroup,
    Reparametrization,
    TransformedModel,
)
from neuromanifold.symmetry.laws import ConservationLaws, conservation_laws
from neuromanifold.symmetry.linear import AffineGroup, GeneralLinearGroup, OrthogonalGroup
from neuromanifold.symmetry.monomial import Monomial
from neuromanifold.symmetry.permutation import PermutationGroup
from neuromanifold.symmetry.places import PlaceGroup, Renaming
from neuromanifold.symmetry.product import NetworkGroup, SymmetryGroup, symmetry_group
from neuromanifold.symmetry.reduce import Reduction, reduce_width
from neuromanifold.symmetry.rewriting import Removal
from neuromanifold.symmetry.scaling import ScalingGroup
from neuromanifold.symmetry.sign import SignedPermutationGroup, SignGroup
from neuromanifold.symmetry.teleport import Teleportation, teleport
from neuromanifold.symmetry.training import teleporting
from neuromanifold.symmetry.transformation import Transformation, gamma_norm, transformation

__all__ = [
    "AbstractGroup",
    "AffineGroup",
    "Balance",
    "BatchGroup",
    "Composition",
    "ConservationLaws",
    "ConservedQuantities",
    "ContinuousGroup",
    "Dense",
    "DimensionAccount",
    "Discovery",
    "Element",
    "Extended",
    "ExtendedModel",
    "FilterScaling",
    "FilterScalingGroup",
    "Flow",
    "FlowGroup",
    "GeneralLinearGroup",
    "HadamardGroup",
    "HiddenEquivalence",
    "LieGroup",
    "MatrixGroup",
    "Monomial",
    "NetworkGroup",
    "OrthogonalGroup",
    "PermutationGroup",
    "PlaceGroup",
    "Reduction",
    "Removal",
    "Renaming",
    "Reparametrization",
    "ScalingGroup",
    "Scalings",
    "SignGroup",
    "SignedPermutationGroup",
    "SymmetryGroup",
    "Teleportation",
    "Transformation",
    "TransformedModel",
    "channel_scalings",
    "conservation_laws",
    "conserved_quantities",
    "conserved_quantities_probe",
    "dimension_account",
    "discover",
    "gamma_norm",
    "hidden_equivalence",
    "reduce_width",
    "symmetry_group",
    "teleport",
    "teleporting",
    "transformation",
]
