"""Parts of published training recipes: Castling-ViT's schedule, averages of the weights, optimizers."""
