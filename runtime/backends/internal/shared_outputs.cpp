#include "lockstep/runtime/backends/internal/shared_outputs.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

using Arrival = ReplicaRendezvous::Arrival;

void share_outputs(std::vector<Arrival>& arrivals, int first_rank) {
  std::vector<size_t> sharing;
  for (size_t local = 0; local < arrivals.size(); ++local)
    if (arrivals[local].shared_output) sharing.push_back(local);
  if (sharing.empty()) return;
  // Ranks in no such mode could not fill a tensor of a rank that is in inference mode.
  const c10::InferenceMode ordinary(/*enabled=*/false);
  const at::NoGradGuard no_grad;
  const at::Tensor& part = arrivals[sharing[0]].inputs[0];
  const size_t num_ranks = arrivals[sharing[0]].outputs.size();
  std::vector<int64_t> sizes = part.sizes().vec();
  sizes.insert(sizes.begin(), static_cast<int64_t>(num_ranks));
  const at::Tensor whole = at::empty(sizes, part.options().requires_grad(false));
  const std::vector<at::Tensor> parts = whole.unbind(0);
  for (const size_t local : sharing) {
    *arrivals[local].shared_output = whole;
    arrivals[local].outputs = parts;
    arrivals[local].fills.assign(num_ranks, 0);
  }
  for (size_t from = 0; from < num_ranks; ++from) {
    const auto local = from - static_cast<size_t>(first_rank);  // huge for ranks before the first
    const bool is_its_own = std::find(sharing.begin(), sharing.end(), local) != sharing.end();
    arrivals[is_its_own ? local : sharing[from % sharing.size()]].fills[from] = 1;
  }
}

}  // namespace

ReplicaRendezvous::MakeWork with_shared_outputs(ReplicaRendezvous::MakeWork gathering, int first_rank) {
  return [gathering = std::move(gathering), first_rank](std::vector<Arrival>& arrivals) {
    share_outputs(arrivals, first_rank);
    return gathering(arrivals);
  };
}

}  // namespace lockstep
