"""Video classification with mmpretrain: dataset, transforms and classifier."""

from .classifier import VideoClassifier, VideoDataPreprocessor
from .clips import LoadClips, PackClips, PerFrame, VideoDataset
