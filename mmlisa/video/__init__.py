"""Video classification on mmpretrain: dataset, transforms, classifier, pictures. It exists where mmpretrain is installed."""

from .classifier import VideoClassifier, VideoDataPreprocessor
from .dataset import VideoDataset
from .demo import DemoVideoDataset
from .transforms import LoadClips, PackClips, PerFrame
from .visualization import VideoOverlayHook, contact_sheet

__all__ = [
    "DemoVideoDataset",
    "LoadClips",
    "PackClips",
    "PerFrame",
    "VideoClassifier",
    "VideoDataPreprocessor",
    "VideoDataset",
    "VideoOverlayHook",
    "contact_sheet",
]
