"""What the kernel predicts: linearisation, gradient flow in the kernel regime, Gaussian
processes, alignment.
"""
