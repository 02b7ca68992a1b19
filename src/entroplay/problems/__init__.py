"""The problem to solve: a loss, a feature map and their finite sum."""
