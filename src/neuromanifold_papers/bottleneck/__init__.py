"""bottleneck: representation cost and the bottleneck structure of deep networks."""
