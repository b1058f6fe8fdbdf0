from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from explorer import Lengths
from explorer_feedforwards.experts import Experts
from explorer_feedforwards.latent_experts import LatentExperts
from explorer_feedforwards.router import Router
from explorer_feedforwards.shared_expert import SharedExpert


class MixtureOfExperts(nn.Module):
    """y = sum_e w_e E_e(x) over the experts e that the router chooses for a token, + shared(x).

    Built by `moe` and `latent_moe`.
    """

    def __init__(self, router: Router, experts: Experts | LatentExperts, shared: SharedExpert | None, *, top_k: int):
        super().__init__()
        self.router, self.experts, self.shared = router, experts, shared
        self.top_k = top_k

    def forward(self, x: Tensor, ids: Tensor | None = None) -> Tensor:
        """ids (B, T): the token ids, which only `select: token` reads."""
        tokens = x.flatten(0, 1)  # (B T, dim)
        y = self.experts(tokens, *self.router(tokens, ids)).view(x.shape)
        return y if self.shared is None else y + self.shared(x)

    def closed_form(self, at: Lengths) -> int:
        """2 d E FLOPs a token for the router, those of its K experts (6 d f K, gated) and of the shared one."""
        linear = self.router.linear
        token = 2 * linear.in_features * linear.out_features + self.experts.flops_per_token(self.top_k)
        shared = 0 if self.shared is None else self.shared.closed_form(at)
        return at.batch * at.tokens * token + shared

    def branch_weights(self) -> Mapping[str, Sequence[Tensor]]:
        """Views of every expert's matrices, one by one. The router and gates are in no role: they scale nothing."""
        inputs, outputs = self.experts.input_weights(), self.experts.output_weights()
        if self.shared is not None:
            of_shared = self.shared.expert.branch_weights()
            inputs, outputs = [*inputs, *of_shared["input"]], [*outputs, *of_shared["output"]]
        return {"value": [], "input": inputs, "output": outputs}
