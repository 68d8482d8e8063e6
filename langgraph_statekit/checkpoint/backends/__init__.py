"""The stores: one module each."""
