"""Bytes held by a pass: weights and what training adds, what backward needs, and the peak."""
