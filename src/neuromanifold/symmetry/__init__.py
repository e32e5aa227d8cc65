"""Groups acting on parameters: actions, generators, orbits, the dimension account, conserved
quantities, teleportation, reduction.
"""

from neuromanifold.symmetry.account.dimension_account import DimensionAccount, dimension_account
from neuromanifold.symmetry.account.equivalence import HiddenEquivalence, hidden_equivalence
from neuromanifold.symmetry.account.rules import (
    StructuralSymmetries,
    SymmetryRule,
    structural_symmetries,
)
from neuromanifold.symmetry.conservation.balances import Balance, Scalings, channel_scalings
from neuromanifold.symmetry.conservation.conserved import (
    ConservedQuantities,
    conserved_quantities,
    conserved_quantities_probe,
)
from neuromanifold.symmetry.conservation.laws import ConservationLaws, conservation_laws
from neuromanifold.symmetry.conservation.teleport import Teleportation, teleport, teleporting
from neuromanifold.symmetry.discovery.discover import Discovery, discover
from neuromanifold.symmetry.groups.base import (
    AbstractGroup,
    Composition,
    ContinuousGroup,
    Element,
    LieGroup,
)
from neuromanifold.symmetry.groups.batch import BatchGroup
from neuromanifold.symmetry.groups.channel_permutation import ChannelPermutationGroup
from neuromanifold.symmetry.groups.dense import AffineElement
from neuromanifold.symmetry.groups.entries import Entries
from neuromanifold.symmetry.groups.filters import FilterScalingGroup
from neuromanifold.symmetry.groups.flow import Flow, FlowGroup
from neuromanifold.symmetry.groups.hadamard import (
    Extended,
    ExtendedModel,
    HadamardGroup,
    MatrixGroup,
    Reparametrization,
    TransformedModel,
)
from neuromanifold.symmetry.groups.linear import AffineGroup, GeneralLinearGroup, OrthogonalGroup
from neuromanifold.symmetry.groups.monomial import Monomial
from neuromanifold.symmetry.groups.permutation import PermutationGroup
from neuromanifold.symmetry.groups.product import NetworkGroup, SymmetryGroup, symmetry_group
from neuromanifold.symmetry.groups.scaling import ScalingGroup
from neuromanifold.symmetry.groups.sign import SignedPermutationGroup, SignGroup
from neuromanifold.symmetry.groups.transformation import Transformation, gamma_norm, transformation
from neuromanifold.symmetry.matching import Barrier, Match, Move, match
from neuromanifold.symmetry.reduction.reduce import Reduction, reduce_width
from neuromanifold.symmetry.reduction.rewriting import Removal

__all__ = [
    "AbstractGroup",
    "AffineElement",
    "AffineGroup",
    "Balance",
    "Barrier",
    "BatchGroup",
    "ChannelPermutationGroup",
    "Composition",
    "ConservationLaws",
    "ConservedQuantities",
    "ContinuousGroup",
    "DimensionAccount",
    "Discovery",
    "Element",
    "Entries",
    "Extended",
    "ExtendedModel",
    "FilterScalingGroup",
    "Flow",
    "FlowGroup",
    "GeneralLinearGroup",
    "HadamardGroup",
    "HiddenEquivalence",
    "LieGroup",
    "Match",
    "MatrixGroup",
    "Monomial",
    "Move",
    "NetworkGroup",
    "OrthogonalGroup",
    "PermutationGroup",
    "Reduction",
    "Removal",
    "Reparametrization",
    "ScalingGroup",
    "Scalings",
    "SignGroup",
    "SignedPermutationGroup",
    "StructuralSymmetries",
    "SymmetryGroup",
    "SymmetryRule",
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
    "match",
    "reduce_width",
    "structural_symmetries",
    "symmetry_group",
    "teleport",
    "teleporting",
    "transformation",
]
