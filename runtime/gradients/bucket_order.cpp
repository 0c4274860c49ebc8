#include "lockstep/runtime/gradients/bucket_order.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "lockstep/runtime/collectives/collectives.h"

namespace lockstep {

BucketOrder::BucketOrder(size_t num_parameters) : current_(num_parameters) {
  reset();
}

void BucketOrder::reset() {
  // Backward reaches the parameters roughly in the reverse order of their use in forward.
  std::iota(current_.rbegin(), current_.rend(), size_t{0});
  next_.clear();
  is_final_ = false;
}

std::vector<size_t> BucketOrder::agreed() const {
  if (!is_final_) return {};
  return has_next() ? next_ : current_;
}

void BucketOrder::set_agreed(std::vector<size_t> order) {
  next_ = std::move(order);
  if (next_ == current_) next_.clear();
  is_final_ = true;
}

void BucketOrder::take_next() {
  current_ = std::exchange(next_, {});
}

void BucketOrder::agree(c10d::Backend& backend, const std::vector<size_t>& arrivals) {
  if (is_final_) return;
  std::vector<size_t> order = arrivals;
  std::vector<char> seen(current_.size(), 0);
  for (const size_t i : order) seen[i] = 1;
  for (const size_t i : current_) {
    if (!seen[i]) order.push_back(i);
  }
  const at::Tensor indices = at::empty({static_cast<int64_t>(order.size())}, at::kLong);
  std::copy(order.begin(), order.end(), indices.data_ptr<int64_t>());
  broadcast_(backend, 0, {indices});
  const auto* values = indices.const_data_ptr<int64_t>();
  next_.assign(values, values + indices.numel());
  if (next_ == current_) next_.clear();
  is_final_ = true;
}

}  // namespace lockstep
