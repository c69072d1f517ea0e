"""Page pools as torch tensors, and the operations on their pages."""
