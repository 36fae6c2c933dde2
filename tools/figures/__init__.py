"""Pictures that the tools draw: attention kernels and matrices as in the papers' figures, and training images."""
