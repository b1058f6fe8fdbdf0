from torch import Tensor

from explorer import Residual


class Add(Residual):
    """x + F(x). He, Zhang, Ren & Sun 2015, arXiv:1512.03385."""

    def write(self, state: Tensor, y: Tensor) -> Tensor:
        return state + y
