#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/training/planning/internal/simulated_memory.h"
#include "lockstep/training/planning/internal/unit_memory.h"
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
  /// Gathers stepped parameters, if sharding has divided the step.
  void gather_parameters();
  const MemoryPlan& most() const { return memory_.most(); }

 private:
  void lay_out_buckets();
  void begin(MicroBatchPlace place);
  void handle(int event);
  void take_gradient(int parameter);
  void take_into_bucket(int parameter);
  int64_t exchanged_bytes(int64_t bytes) const;
  void end_exchange();
  bool has_earlier() const { return place_ == MicroBatchPlace::kMiddle || place_ == MicroBatchPlace::kLast; }

  const RecordedStep& record_;
  const TrainingLayout& layout_;
  const MemoryPlan kept_;
  SimulatedMemory memory_;
  UnitMemory units_;
  std::vector<int> bucket_of_;  // for each parameter; -1: none
  std::vector<int64_t> bucket_bytes_;
  std::vector<int> bucket_members_;

  MicroBatchPlace place_ = MicroBatchPlace::kOnly;
  std::vector<bool> has_bucket_;
  std::vector<int> missing_;  // for each bucket: gradients that have not arrived
  size_t next_bucket_ = 0;
  int64_t exchange_ = 0;  // bytes of a bucket that processes exchange
};

}  // namespace lockstep
