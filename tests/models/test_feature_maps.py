import mmlisa


def test_channels_and_strides_for_a_neck():
    assert mmlisa.channels("LiSANet", "hybrid-small") == [64, 128, 320, 384]
    assert mmlisa.channels("mmlisa.LiSANet", "hybrid-small", (1, -1)) == [128, 384]
    assert mmlisa.strides("CastlingLeViT", "128", (0, 2)) == [16, 64]
    assert mmlisa.channels("LiSANet", dict(base="small", channels=(8, 16, 40, 48)), (3,)) == [48]
