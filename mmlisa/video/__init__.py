"""Video classification with mmpretrain: dataset, transforms, classifier and contact sheets."""

from .classifier import VideoClassifier, VideoDataPreprocessor
from .dataset import VideoDataset
from .transforms import LoadClips, PackClips, PerFrame
from .visualization import VideoOverlayHook, contact_sheet
