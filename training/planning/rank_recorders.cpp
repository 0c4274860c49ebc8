#include "lockstep/training/planning/rank_recorders.h"

#include <c10/util/StringUtil.h>

#include <algorithm>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/training/planning/internal/rank_allocations.h"

namespace lockstep {
namespace {

size_t place_of(const ReplicaContext& replica, size_t num_ranks) {
  const auto rank = static_cast<size_t>(replica.rank());
  if (rank < num_ranks) return rank;
  throw InvalidArgument(
      c10::str("[RankRecorders] expected a rank below ", num_ranks, ", but got ", replica.rank()));
}

void add(BatchQuantity& sum, const BatchQuantity& one) {
  sum.fixed += one.fixed;
  sum.per_example += one.per_example;
}

void divide(BatchQuantity& sum, double count) {
  sum.fixed /= count;
  sum.per_example /= count;
}

/// Calls `visit` with each quantity of a record that may differ between ranks.
template <typename Visit>
void visit_quantities(RecordedStep& record, const Visit& visit) {
  for (auto& allocation : record.allocations) visit(allocation.bytes);
  for (auto& one : record.operators) {
    visit(one.flops);
    visit(one.bytes_read);
    visit(one.bytes_written);
  }
  for (auto& call : record.calls) {
    auto& halves = call.halves;
    for (auto* quantity : {&halves.saved, &halves.gradients, &halves.most_in_first, &halves.most_in_second})
      visit(*quantity);
  }
}

std::vector<BatchQuantity*> quantities_of(RecordedStep& record) {
  std::vector<BatchQuantity*> all;
  visit_quantities(record, [&](BatchQuantity& quantity) { all.push_back(&quantity); });
  return all;
}

}  // namespace

RankRecorders::RankRecorders(int num_ranks, const ModuleRecorderOptions& options) {
  if (num_ranks < 1)
    throw InvalidArgument(c10::str("[RankRecorders] expected 1 or more ranks, but got ", num_ranks));
  const auto allocations = std::make_shared<RankAllocations>();
  for (int rank = 0; rank < num_ranks; ++rank)
    recorders_.push_back(std::make_unique<ModuleRecorder>(options, allocations));
  records_.resize(static_cast<size_t>(num_ranks));
}

RankRecorders::~RankRecorders() = default;

ModuleRecorder& RankRecorders::of(const ReplicaContext& replica) {
  return *recorders_[place_of(replica, recorders_.size())];
}

void RankRecorders::record(const ReplicaContext& replica, torch::nn::Module& model,
                           const std::function<ModuleRecorder::Batch(int64_t examples)>& batch_of,
                           const std::function<torch::Tensor(const ModuleRecorder::Batch& batch)>& loss_of) {
  const size_t rank = place_of(replica, recorders_.size());
  records_[rank] = recorders_[rank]->record(model, batch_of, loss_of);
}

const RecordedStep& RankRecorders::largest() const {
  const auto need_of = [](const RecordedStep& record) {
    const auto live = record.live_bytes(record.most_examples);
    return live.empty() ? 0 : *std::max_element(live.begin(), live.end());
  };
  return *std::max_element(records_.begin(), records_.end(),
                           [&](const auto& a, const auto& b) { return need_of(a) < need_of(b); });
}

RecordedStep RankRecorders::mean() const {
  RecordedStep mean = records_.front();
  const auto sums = quantities_of(mean);
  for (size_t rank = 1; rank < records_.size(); ++rank) {
    RecordedStep other = records_[rank];
    const auto terms = quantities_of(other);
    if (terms.size() != sums.size()) {
      throw InvalidArgument(c10::str("[RankRecorders] expected ranks that do the same, but rank 0 allocates ",
                                     mean.allocations.size(), " tensors in ", mean.operators.size(),
                                     " operators, and rank ", rank, " ", other.allocations.size(), " in ",
                                     other.operators.size()));
    }
    for (size_t i = 0; i < sums.size(); ++i) add(*sums[i], *terms[i]);
  }
  for (auto* sum : sums) divide(*sum, static_cast<double>(records_.size()));
  return mean;
}

}  // namespace lockstep
