"""What else uses a device while it is measured, and how fast its clocks run."""
