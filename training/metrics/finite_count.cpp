#include "lockstep/training/metrics/finite_count.h"

namespace lockstep {

std::vector<FiniteCount> count_finite(const PerReplica<FiniteSteps>& steps, Strategy& strategy,
                                      bool all_workers) {
  const int64_t first = strategy.first_local_replica();
  std::vector<FiniteCount> counts;
  for (const auto& local : steps.local_values()) {
    const size_t index = counts.size();
    counts.push_back(
        {first + static_cast<int64_t>(index), (*steps.devices())[index].str(), local.count(), local.steps()});
  }
  if (!all_workers || strategy.num_local_replicas() == strategy.num_replicas_in_sync()) return counts;
  std::vector<torch::Tensor> rows;
  for (size_t i = 0; i < counts.size(); ++i) {
    rows.push_back(torch::tensor({{counts[i].good, counts[i].steps}}, torch::kLong)
                       .to((*steps.devices())[i].torch_device()));
  }
  const auto all = strategy.gather(PerReplica(std::move(rows), steps.devices())).cpu();
  std::vector<FiniteCount> everywhere;
  for (int64_t replica = 0; replica < all.size(0); ++replica) {
    const int64_t here = replica - first;
    const bool is_here = here >= 0 && here < static_cast<int64_t>(counts.size());
    everywhere.push_back({replica, is_here ? counts[static_cast<size_t>(here)].device : "of another worker",
                          all[replica][0].item<int64_t>(), all[replica][1].item<int64_t>()});
  }
  return everywhere;
}

}  // namespace lockstep
