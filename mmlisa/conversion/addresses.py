"""Where the authors of MILA and ViT³ published their weights, under the MIT licence."""

from dataclasses import dataclass
from pathlib import PurePath


@dataclass(frozen=True)
class PublishedFile:
    """A file of published weights.

    Attributes:
        name: file name in the folder ``data``, as used in this package's configs and pages.
        network: the network whose weights it contains.
        scores: the authors' results with it.
        address: URL for a download with a browser.
    """

    name: str
    network: str
    scores: str
    address: str


def _file(name: str, network: str, scores: str, key: str) -> PublishedFile:
    return PublishedFile(name, network, scores, f"https://cloud.tsinghua.edu.cn/f/{key}/?dl=1")


def _detector(size: str, network: str, schedule: str, box: float, mask: float, key: str) -> PublishedFile:
    name = f"mask_rcnn_{network}_{size}_{schedule}_coco.pth"
    shown = {"mila": "MILA", "h_vit3": "H-ViT³"}[network]
    return _file(name, f"Mask R-CNN, {shown}-{size.upper()}, {schedule}", f"box AP {box}, mask AP {mask}", key)


PUBLISHED_FILES = (
    _file("MLLA_T.pth", "MILA-T", "83.5 % top-1", "7a19712877cb4242889c"),
    _file("MLLA_S.pth", "MILA-S", "84.4 % top-1", "0e5d0b1409d540aaa80c"),
    _file("MLLA_B.pth", "MILA-B", "85.3 % top-1", "91c85c5a1061496d8796"),
    _detector("t", "mila", "1x", 46.8, 42.1, "ce362e868fb5491ca55c"),
    _detector("t", "mila", "3x", 48.8, 43.8, "339d49127565432fb912"),
    _detector("s", "mila", "1x", 49.2, 44.2, "3d29bec850e0441a8842"),
    _detector("s", "mila", "3x", 50.5, 44.9, "b501c886982e4c7f926d"),
    _detector("b", "mila", "1x", 50.5, 45.0, "826278b01bed4df2bbc1"),
    _file("upernet_mila_b_160k_ade20k.pth", "UperNet, MILA-B", "mIoU 51.9", "41760d4a531a4ffc9cbf"),
    _file("ViTTT-T.pth", "ViT³-T", "76.5 % top-1", "e12d1bd1c20c4e06a2da"),
    _file("ViTTT-S.pth", "ViT³-S", "81.6 % top-1", "4ab59ca54b474dff9b70"),
    _file("ViTTT-B.pth", "ViT³-B", "82.6 % top-1", "c9e9bb09f85d449ab8cf"),
    _file("H-ViTTT-T.pth", "H-ViT³-T", "84.0 % top-1", "f0c7c73ceabe49b7b161"),
    _file("H-ViTTT-S.pth", "H-ViT³-S", "84.9 % top-1", "3eeab8621a7f43929a87"),
    _file("H-ViTTT-B.pth", "H-ViT³-B", "85.5 % top-1", "1d0d7fb840254275b29d"),
    _detector("t", "h_vit3", "1x", 47.3, 42.8, "a00315bbfd504edebfb0"),
    _detector("t", "h_vit3", "3x", 48.9, 44.0, "8c39ef3d7d144a81b986"),
    _detector("s", "h_vit3", "1x", 49.1, 44.1, "b42d36b21a5e44d0b266"),
    _detector("s", "h_vit3", "3x", 50.5, 45.0, "faa577d9a25140ef94d1"),
    _detector("b", "h_vit3", "1x", 50.0, 44.6, "4a641d087ca248e8804b"),
    _detector("b", "h_vit3", "3x", 51.0, 45.3, "e9c1aef780d949489408"),
    _file("upernet_h_vit3_t_160k_ade20k.pth", "UperNet, H-ViT³-T", "mIoU 48.0", "df39e508ae5b49c59cca"),
    _file("upernet_h_vit3_s_160k_ade20k.pth", "UperNet, H-ViT³-S", "mIoU 50.2", "71c786dd7e8046b5ab43"),
    _file("upernet_h_vit3_b_160k_ade20k.pth", "UperNet, H-ViT³-B", "mIoU 51.7", "6bd6db157003462f9fed"),
)


def how_to_download(source: str) -> str:
    """Return what to download manually for ``source``, a file's name or address, and where to save it; '' if unknown."""
    for file in PUBLISHED_FILES:
        if source == file.address or PurePath(source).name == file.name:
            path = f"data/{file.name}" if source == file.address else source
            return f"{file.network}: download {file.address} with a browser, save it as {path}, and give {path!r} as the source"
    return ""
