// Gradients reach a recomputed function only through tensors: a number has none.
#include "lockstep/strategies/nn/recompute.h"

using namespace lockstep;

void recompute_number(const torch::Tensor& x) {
  recompute([](const torch::Tensor& in) { return in * 2; }, x).sum().backward();
#ifdef LOCKSTEP_MUST_NOT_COMPILE
  recompute([](const torch::Tensor& in) { return (in * 2).sum().item<double>(); }, x);
#endif
}
