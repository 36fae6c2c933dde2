"""What the demo data sets of the three libraries share."""


class Generated:
    """Mixin: generates the demo data under ``data_root`` on first use."""

    def load_data_list(self) -> list[dict]:
        from .demo import ensure_demo  # only the demo data need its packages

        ensure_demo(self.data_root)
        return super().load_data_list()
