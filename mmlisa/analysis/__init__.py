"""What the tools do: predicting on pictures, counting, drawing, measuring."""
