#include "lockstep/training/callbacks/internal/step_memory.h"

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <atomic>

#include "lockstep/training/state/internal/device_bytes.h"

namespace lockstep {
namespace {

constexpr int64_t kMeasuredStep = 3;
constexpr auto kReports = c10::DebugInfoKind::PROFILER_STATE;

}  // namespace

class StepMemory::Counter final : public c10::MemoryReportingInfoBase {
 public:
  /// Replicas' threads call it at the same time.
  void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override {
    const int64_t now = now_ += bytes;
    int64_t peak = peak_;
    while (now > peak && !peak_.compare_exchange_weak(peak, now)) {
    }
  }
  bool memoryProfilingEnabled() const override { return is_counting_; }

  int64_t peak() const { return peak_; }
  bool is_counting() const { return is_counting_; }
  void stop() { is_counting_ = false; }

 private:
  std::atomic<bool> is_counting_{true};
  std::atomic<int64_t> now_{0};
  std::atomic<int64_t> peak_{0};
};

StepMemory::~StepMemory() {
  stop_counting();
}

void StepMemory::on_step_begin(const FitState& state) {
  if (++num_steps_ != kMeasuredStep || !counts_on_cpus_ || bytes_on_accelerators(state.strategy()).peak > 0)
    return;
  if (c10::ThreadLocalDebugInfo::get(kReports) != nullptr) return;
  counter_ = std::make_shared<Counter>();
  c10::ThreadLocalDebugInfo::_push(kReports, counter_);
}

bool StepMemory::on_step_end(const FitState& state) {
  if (num_steps_ != kMeasuredStep || is_done_) return false;
  is_done_ = true;
  if (const AllocatedBytes bytes = bytes_on_accelerators(state.strategy()); bytes.peak > 0) {
    bytes_ = bytes.peak - bytes.now;
  } else if (counter_ != nullptr && counter_->is_counting()) {
    bytes_ = counter_->peak();
  }
  stop_counting();
  return true;
}

void StepMemory::stop_counting() {
  if (counter_ == nullptr) return;
  counter_->stop();
  if (c10::ThreadLocalDebugInfo::get(kReports) == counter_.get()) c10::ThreadLocalDebugInfo::_pop(kReports);
  counter_.reset();
}

void StepMemory::make_way_for_profiler() {
  auto* counter = dynamic_cast<Counter*>(c10::ThreadLocalDebugInfo::get(kReports));
  if (counter == nullptr) return;
  counter->stop();
  c10::ThreadLocalDebugInfo::_pop(kReports);
}

}  // namespace lockstep
