#include "lockstep/benchmarks/scaling/step_model.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>

#include "lockstep/runtime/gradients/bucket_layout.h"

namespace lockstep::benchmarks {
namespace {

/// The backward pass. Exchanges that run at the same time slow it down.
class Backward {
 public:
  explicit Backward(double seconds) : left_(seconds), total_(seconds) {}

  double now() const { return now_; }
  /// Works without an exchange at the same time until `done` seconds of its work are done.
  void work_until(double done) {
    const double more = std::max(0.0, std::min(done, total_) - (total_ - left_));
    now_ += more;
    left_ -= more;
  }
  void work_beside(const ExchangeTimes& exchange) {
    left_ -= std::min(left_, exchange.seconds * (1 - exchange.taken_share));
    now_ += exchange.seconds;
  }

 private:
  double now_ = 0;
  double left_;
  const double total_;
};

}  // namespace

ComputeTimes ComputeTimes::in_buckets(const BucketOptions& options) const {
  std::vector<BucketItem> items;
  for (const auto& gradient : gradients)
    items.push_back({static_cast<int64_t>(gradient.bytes), "float32 on the CPU"});
  std::vector<size_t> order(items.size());
  std::iota(order.begin(), order.end(), 0);
  ComputeTimes result = *this;
  result.buckets.clear();
  for (const auto& members : assign_buckets(items, order, options)) {
    auto& bucket = result.buckets.emplace_back();
    for (const size_t member : members) bucket.bytes += gradients[member].bytes;
    bucket.ready_seconds = gradients[members.back()].ready_seconds;
  }
  return result;
}

std::vector<ModelBucket> even_buckets(double bytes, double first_bytes, double bucket_bytes,
                                      double backward_seconds) {
  std::vector<ModelBucket> buckets;
  double sent = 0;
  while (sent < bytes) {
    const double size = std::min(buckets.empty() ? first_bytes : bucket_bytes, bytes - sent);
    sent += size;
    buckets.push_back({size, backward_seconds * sent / bytes});
  }
  return buckets;
}

double step_seconds(const ComputeTimes& compute, const std::vector<ExchangeTimes>& exchanges,
                    Overlap overlap) {
  const auto& buckets = compute.buckets;
  if (exchanges.size() < buckets.size()) {
    throw std::invalid_argument("[step_seconds] expected an exchange for each of " +
                                std::to_string(buckets.size()) + " buckets, but got " +
                                std::to_string(exchanges.size()));
  }
  Backward backward(compute.backward_seconds);
  for (size_t i = 0; i < exchanges.size(); ++i) {
    const bool leaves_early = overlap == Overlap::kBackward && i < buckets.size();
    backward.work_until(leaves_early ? buckets[i].ready_seconds : compute.backward_seconds);
    backward.work_beside(exchanges[i]);
  }
  backward.work_until(compute.backward_seconds);
  return compute.forward_seconds + backward.now() + compute.waiting_seconds + compute.optimizer_seconds;
}

}  // namespace lockstep::benchmarks
