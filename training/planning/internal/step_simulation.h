#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/training/planning/memory_plan.h"
#include "lockstep/training/planning/recorded_step.h"

namespace lockstep {

/// Which of a step's micro-batches it is: gradients of earlier ones are there in all but the first.
enum class MicroBatchPlace : uint8_t { kOnly, kFirst, kMiddle, kLast };

/// Goes through the events of a recorded step as a layout changes them, and keeps the memory by part at the
/// moment at which most is there.
class StepSimulation {
 public:
  /// `kept` is what is there all the time.
  StepSimulation(const RecordedStep& record, const TrainingLayout& layout, const MemoryPlan& kept);

  void run(MicroBatchPlace place);
  const MemoryPlan& most() const { return most_; }

 private:
  using Part = int64_t MemoryPlan::*;
  struct Use {
    int call = 0;
    bool is_backward = false;
  };
  struct Sum {
    int64_t sent = 0;
    int64_t own = 0;
    int ends_at = 0;
  };

  void find_units();
  void find_uses();
  void find_reductions();
  void lay_out_buckets();
  void begin(MicroBatchPlace place);
  void add(Part part, int64_t bytes);
  void allocate(int allocation);
  void drop(int allocation);
  void free(int allocation);
  void pin(int allocation);
  void unpin(int allocation);
  void handle(int event);
  void end_block(int call);
  void begin_backward(int event, int call);
  void end_backward(int call);
  void take_gradient(int parameter);
  void take_into_bucket(int parameter);
  void begin_use(int call);
  void end_use();
  void set_whole(int first, int second);
  void reduce(int event, int call);
  void end_sum();
  bool is_recomputed(int call) const;
  bool is_unit(int block) const { return layout_.stage == 3 && unit_bytes_[static_cast<size_t>(block)] > 0; }
  bool is_in_unit(int parameter) const;
  int unit_of(size_t use) const;
  int64_t bytes_of(int parameter) const;

  const RecordedStep& record_;
  const TrainingLayout& layout_;
  const MemoryPlan kept_;
  std::vector<int64_t> sizes_;       // of allocations
  std::vector<bool> is_recomputed_;  // for each block
  std::vector<int64_t> unit_bytes_;  // for each block: its parameters' bytes with padding
  std::vector<Use> uses_;            // of units, in their order
  std::vector<int> reductions_;      // for each event: the call whose gradients are complete then, or -1
  std::vector<int> bucket_of_;       // for each parameter; -1: none
  std::vector<int64_t> bucket_bytes_;
  std::vector<int> bucket_members_;

  MicroBatchPlace place_ = MicroBatchPlace::kOnly;
  MemoryPlan now_;
  int64_t total_ = 0;
  MemoryPlan most_;
  int64_t most_total_ = -1;
  std::vector<bool> is_held_;  // allocations
  std::vector<int> pins_;      // allocations that something else needs
  std::vector<bool> is_due_;   // freed, but for their pins
  size_t use_ = 0;             // that comes next
  int64_t whole_bytes_ = 0;
  std::optional<Sum> sum_;
  std::vector<bool> has_bucket_;
  std::vector<int> missing_;  // for each bucket: gradients that have not arrived
  size_t next_bucket_ = 0;
};

}  // namespace lockstep
