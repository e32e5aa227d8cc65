"""What the kernel of a network predicts: linearisation, gradient flow in the kernel regime,
alignment.
"""
