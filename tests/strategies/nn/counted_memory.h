#pragma once

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>

namespace lockstep {

/// Counts the bytes of CPU tensors that this thread, and backward on its behalf, allocates and frees while
/// the object lives, as LibTorch's allocator reports them.
class CountedMemory {
 public:
  CountedMemory()
      : counter_(std::make_shared<Counter>()), guard_(c10::DebugInfoKind::PROFILER_STATE, counter_) {}

  /// Counts what this thread allocates and frees, too, in the other object.
  CountedMemory(const CountedMemory& other)
      : counter_(other.counter_), guard_(c10::DebugInfoKind::PROFILER_STATE, counter_) {}
  CountedMemory& operator=(const CountedMemory&) = delete;

  /// Bytes allocated since the start, less those freed.
  int64_t now() const { return counter_->now; }
  int64_t peak() const { return counter_->peak; }
  /// Lets peak() begin anew.
  void begin_peak() { counter_->peak = counter_->now.load(); }

 private:
  struct Counter final : c10::MemoryReportingInfoBase {
    void reportMemoryUsage(void*, int64_t size, size_t, size_t, c10::Device) override {
      now += size;
      int64_t most = peak;
      const int64_t current = now;
      while (most < current && !peak.compare_exchange_weak(most, current)) continue;
    }
    bool memoryProfilingEnabled() const override { return true; }

    std::atomic<int64_t> now{0};
    std::atomic<int64_t> peak{0};
  };

  std::shared_ptr<Counter> counter_;
  c10::DebugInfoGuard guard_;
};

}  // namespace lockstep
