#include "lockstep/strategies/input/batch_shares.h"

#include <utility>

namespace lockstep {

BatchShares::BatchShares(int num_replicas, std::vector<double> weights)
    : num_replicas_(num_replicas), weights_(std::move(weights)) {}

std::vector<int64_t> BatchShares::cut(int64_t n) const {
  return cut_among(n, 0, num_replicas_);
}

std::vector<int64_t> BatchShares::cut_among(int64_t n, int first, int count) const {
  MutexLock lock(mutex_);
  if (weights_.empty()) return cut_equally(n, count);
  return cut_by_weights(n, {weights_.begin() + first, weights_.begin() + first + count});
}

std::vector<double> BatchShares::weights() const {
  MutexLock lock(mutex_);
  return weights_;
}

void BatchShares::set_weights(std::vector<double> weights) {
  MutexLock lock(mutex_);
  weights_ = std::move(weights);
}

}  // namespace lockstep
