"""``mmlisa fit``: from a folder of annotated images to a trained model and a report."""
