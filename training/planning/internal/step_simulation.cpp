#include "lockstep/training/planning/internal/step_simulation.h"

#include <algorithm>
#include <utility>

#include "lockstep/training/planning/internal/kept_memory.h"

namespace lockstep {
namespace {

using Kind = RecordedEvent::Kind;

}  // namespace

StepSimulation::StepSimulation(const RecordedStep& record, const TrainingLayout& layout,
                               const MemoryPlan& kept)
    : record_(record),
      layout_(layout),
      kept_(kept),
      memory_(record, layout),
      units_(record, layout, memory_, {{0, static_cast<int>(record.events.size())}}) {
  lay_out_buckets();
}

void StepSimulation::lay_out_buckets() {
  bucket_of_.assign(record_.parameters.size(), -1);
  const bool are_divided = layout_.stage == 1 || layout_.stage == 2;
  if (!are_divided || layout_.replicas == 1) return;
  for (const auto& bucket : planned_buckets(record_, layout_)) {
    for (const size_t i : bucket.parameters) bucket_of_[i] = static_cast<int>(bucket_bytes_.size());
    bucket_bytes_.push_back(bucket.bytes);
    bucket_members_.push_back(static_cast<int>(bucket.parameters.size()));
  }
}

void StepSimulation::begin(MicroBatchPlace place) {
  place_ = place;
  MemoryPlan now = kept_;
  units_.restart(has_earlier());
  has_bucket_.assign(bucket_bytes_.size(), false);
  missing_ = bucket_members_;
  next_bucket_ = 0;
  exchange_ = 0;
  for (size_t i = 0; has_earlier() && i < record_.parameters.size(); ++i) {
    if (!record_.parameters[i].is_trained) continue;
    const int parameter = static_cast<int>(i);
    const int64_t bytes = memory_.bytes_of_parameter(parameter);
    now.gradients += units_.is_in_unit(parameter) ? bytes / layout_.replicas : bytes;
  }
  memory_.restart(now);
}

void StepSimulation::run(MicroBatchPlace place) {
  begin(place);
  for (int event = 0; event < static_cast<int>(record_.events.size()); ++event) {
    units_.before(event);
    handle(event);
    units_.after(event);
  }
}

void StepSimulation::handle(int event) {
  const auto& [kind, number] = record_.events[at(event)];
  switch (kind) {
    case Kind::kAllocate:
      return memory_.allocate(number);
    case Kind::kFree:
      return memory_.free(number);
    case Kind::kBlockBegins:
      units_.begin_use(number);
      return memory_.begin_call(number);
    case Kind::kBlockEnds:
      memory_.end_call(number);
      return units_.end_forward(number);
    case Kind::kForwardEnds:
      return;
    case Kind::kBackwardBegins:
      units_.begin_use(number);
      return memory_.begin_backward(event, number);
    case Kind::kBackwardEnds:
      memory_.end_backward(number);
      return units_.end_backward(number);
    case Kind::kGradient:
      return take_gradient(number);
  }
}

void StepSimulation::take_gradient(int parameter) {
  if (units_.is_in_unit(parameter)) return;
  const int allocation = record_.parameters[at(parameter)].gradient;
  const bool is_summed =
      sums_gradients(layout_) && (place_ == MicroBatchPlace::kOnly || place_ == MicroBatchPlace::kLast);
  if (is_summed) take_into_bucket(parameter);
  if (has_earlier() || is_summed) memory_.drop(allocation);  // added to the one before, or copied
  if (has_earlier() && is_summed) memory_.add(&MemoryPlan::gradients, -memory_.bytes_of_parameter(parameter));
}

/// One bucket fills while the one before it is summed.
void StepSimulation::take_into_bucket(int parameter) {
  const int bucket = bucket_of_[at(parameter)];
  if (bucket < 0) return;
  const bool is_kept_apart = layout_.stage == 2;
  if (is_kept_apart && !has_bucket_[at(bucket)]) {
    has_bucket_[at(bucket)] = true;
    end_exchange();
    memory_.add(&MemoryPlan::buckets, bucket_bytes_[at(bucket)]);
  }
  --missing_[at(bucket)];
  for (; next_bucket_ < missing_.size() && missing_[next_bucket_] == 0; ++next_bucket_) {
    if (next_bucket_ > 0 && is_kept_apart)
      memory_.add(&MemoryPlan::buckets, -bucket_bytes_[next_bucket_ - 1]);
    if (!has_processes(layout_)) continue;
    // Sums over the replicas of a process, which processes exchange.
    end_exchange();
    exchange_ = exchanged_bytes(bucket_bytes_[next_bucket_]);
    memory_.add(&MemoryPlan::communication, exchange_);
  }
}

/// Sums are taken to end before the next bucket begins to fill.
void StepSimulation::end_exchange() {
  memory_.add(&MemoryPlan::communication, -std::exchange(exchange_, 0));
}

int64_t StepSimulation::exchanged_bytes(int64_t bytes) const {
  return bytes / replicas_of_process(layout_);
}

/// Two buckets at a time, of which each process sends a part and receives the whole.
void StepSimulation::gather_parameters() {
  if (bucket_bytes_.empty() || !has_processes(layout_)) return;
  memory_.restart(kept_);
  int64_t most = 0;
  for (size_t i = 0; i < bucket_bytes_.size(); ++i) {
    const int64_t bytes = bucket_bytes_[i] + (i > 0 ? bucket_bytes_[i - 1] : 0);
    most = std::max(most, bytes / layout_.replicas + exchanged_bytes(bytes));
  }
  memory_.add(&MemoryPlan::communication, most);
}

}  // namespace lockstep
