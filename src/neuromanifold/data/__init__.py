"""Data sets: synthetic, bundled with scikit-learn, fetched; and files of samples."""

from neuromanifold.data.catalogue import catalogue, fetch, load, names, read
from neuromanifold.data.dataset import Dataset

__all__ = ["Dataset", "catalogue", "fetch", "load", "names", "read"]
