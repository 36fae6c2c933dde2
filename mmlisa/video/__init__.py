"""Video classification with mmpretrain: dataset, transforms and classifier."""

from .classifier import VideoClassifier, VideoDataPreprocessor
from .dataset import VideoDataset
from .transforms import LoadClips, PackClips, PerFrame
