#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lockstep/training/planning/internal/rank_allocations.h"
#include "lockstep/training/planning/recorded_step.h"

namespace lockstep {

/// A log of one step with one number of examples. While it is this thread's PROFILER_STATE, LibTorch reports
/// each allocation to it, and OperatorKernelGuard each operator.
class StepLog final : public c10::MemoryReportingInfoBase {
 public:
  struct Allocation {
    int64_t bytes = 0;
    int call = -1;
    bool is_backward = false;
    int freed_at = -1;
  };
  struct Operator {
    std::string name;
    bool has_kernel = false;  // of its own, and does not only call other operators
    int call = -1;
    bool is_backward = false;
    std::vector<std::vector<int64_t>> shapes;
    std::vector<std::string> dtypes;
    double flops = 0;
    int64_t bytes_read = 0;
    int64_t bytes_written = 0;
  };

  /// `ranks` are those that are recorded at the same time; null: there are none.
  explicit StepLog(std::shared_ptr<RankAllocations> ranks = nullptr) : ranks_(std::move(ranks)) {}
  ~StepLog() override {
    if (ranks_) ranks_->forget(*this);
  }
  StepLog(const StepLog&) = delete;
  StepLog& operator=(const StepLog&) = delete;

  /// Returns the log of this thread, or null.
  static StepLog* of_thread();

  void reportMemoryUsage(void* memory, int64_t bytes, size_t total, size_t reserved,
                         c10::Device device) override;
  bool memoryProfilingEnabled() const override { return true; }

  /// Returns the number of the call that begins.
  int begin_call(const std::string& block, const at::Tensor& input);
  void end_call(int call, const at::Tensor& output);
  void begin_backward_of(int call, const at::Tensor& gradient);
  void end_backward_of(int call);
  void end_forward();
  /// Notes that backward comes to a node, which forward has given the number.
  void begin_node(int64_t number);
  /// Between them, backward gives a parameter its gradient. It copies one that another rank's thread still
  /// uses, which depends on the threads: the copy counts as the gradient itself.
  void begin_accumulation() { is_accumulating_ = is_of_ranks(); }
  void end_accumulation() { is_accumulating_ = false; }
  bool is_accumulating() const { return is_accumulating_; }
  void take_copy(const at::Tensor& copy, const at::Tensor& gradient);
  /// Notes the gradient of a parameter.
  void take_gradient(int parameter, const at::Tensor& gradient);
  bool is_in_call() const { return call_ >= 0; }
  /// Whether it is that of a rank, recorded together with others.
  bool is_of_ranks() const { return ranks_ != nullptr; }

  /// Whether operators that begin now are not part of one that counts as a whole.
  bool counts_operators() const {
    return is_recording && num_whole_ == 0 && num_collectives_ == 0 && !is_accumulating_;
  }
  /// Between them, this thread does a part of a collective, which any of its ranks may do: neither operators
  /// nor their memory count.
  void begin_collective() { ++num_collectives_; }
  void end_collective() { --num_collectives_; }
  /// Begins an operator; those that it calls do not count if it `is_whole`. If it `may_need_scratch`, its
  /// sizes decide whether it needs memory while it runs: it then has a piece of memory in any case, of no
  /// bytes if it needs none. Give the result to
  /// end_operator().
  struct Inner {
    size_t num_counted = 0;
    bool is_whole = false;
    bool may_need_scratch = false;
    size_t first_event = 0;
    size_t first_allocation = 0;
  };
  Inner begin_operator(bool is_whole, bool may_need_scratch);
  /// Counts the operator, unless it is null or only calls counted ones. One with a kernel that has filled its
  /// results first counts as a whole.
  void end_operator(const Inner& inner, Operator* seen);

  std::vector<Allocation> allocations;
  std::vector<Operator> operators;
  std::vector<RecordedEvent> events;
  /// Frees by other threads: allocations, and the numbers of the events that came next. They are not
  /// among the events, since their moments depend on the other threads.
  std::vector<std::pair<int, int>> freed_elsewhere;
  std::vector<RecordedCall> calls;
  std::vector<std::string> blocks;
  std::vector<int> gradients;  // for each parameter: its allocation
  bool is_recording = true;

 private:
  int now() const { return static_cast<int>(events.size()); }
  void note(RecordedEvent::Kind kind, int number) { events.push_back({kind, number}); }
  int allocation_of(const at::Tensor& tensor) const;
  void take_news();
  void allocate(const void* memory, int64_t bytes);
  void join_scratch(const Inner& inner);

  std::shared_ptr<RankAllocations> ranks_;
  std::unordered_map<const void*, int> live_;
  std::vector<std::pair<int64_t, int64_t>> nodes_;  // of each call: its nodes' numbers, the last one excluded
  int call_ = -1;                                   // that runs, or whose backward does
  bool is_backward_ = false;
  std::unordered_map<const void*, int64_t> copies_;  // bytes of gradients that are being copied
  bool is_accumulating_ = false;
  int num_collectives_ = 0;
  int num_whole_ = 0;  // operators that run now and count as a whole
};

}  // namespace lockstep
