"""Dense heads that no OpenMMLab package has."""
