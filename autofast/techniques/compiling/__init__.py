"""What speaks against torch.compile."""
