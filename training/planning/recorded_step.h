#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// A quantity that grows with the examples of a micro-batch.
struct BatchQuantity {
  double fixed = 0;
  double per_example = 0;

  double at(int64_t examples) const { return fixed + per_example * static_cast<double>(examples); }
};

/// A parameter of a recorded model.
struct RecordedParameter {
  std::string name;
  int64_t elements = 0;
  int64_t element_bytes = 4;
  bool is_trained = true;            ///< whether it requires a gradient
  bool has_sparse_gradient = false;  ///< which is summed by rows, in no bucket
  int block = -1;                    ///< number of the block that it belongs to; -1: none
  int gradient = -1;                 ///< number of the allocation that became its gradient; -1: none
  /// Ranks along an axis that cuts the batch that have equal slices of the parameter, such as of experts; 1:
  /// each of these ranks has all of it.
  int64_t num_slices = 1;
};

/// An operator that the step called and that computes by itself: one that only calls others is left out, as
/// are those that a counted one calls.
struct RecordedOperator {
  std::string name;  ///< such as "aten::addmm"
  int block = -1;    ///< in which it ran; -1: outside of blocks
  bool is_backward = false;
  std::vector<std::vector<int64_t>> shapes;  ///< of its tensor arguments, with the most examples recorded
  std::vector<std::string> dtypes;           ///< of its tensor arguments, such as "Float"
  /// Of matrix products, convolutions and fused attention, two for a multiplication and its addition; 0 for
  /// all others.
  BatchQuantity flops;
  BatchQuantity bytes_read;     ///< of its tensor arguments
  BatchQuantity bytes_written;  ///< of its results that are no views of arguments
};

/// A piece of memory that the step allocated.
struct RecordedAllocation {
  BatchQuantity bytes;
  int call = -1;             ///< number of the block's call in which it was allocated; -1: outside
  bool is_backward = false;  ///< allocated in backward
  bool is_saved = false;     ///< allocated in forward, and kept for backward
  int parameter = -1;        ///< whose gradient it became; -1: none
  int freed_at = -1;         ///< number of the event; -1: not freed in the step
};

/// The memory of a call's backward if it runs in two halves, as the schedules zb-h1 and zb-v do it: for the
/// block's input first, and for its parameters later.
struct RecordedHalves {
  bool are_apart = false;              ///< whether it has two halves; if not, all else is 0
  bool needs_input = false;            ///< whether the second half needs the block's input
  BatchQuantity saved;                 ///< of what forward allocated, bytes that the second half needs
  BatchQuantity gradients;             ///< bytes that the first half keeps for the second one
  bool keeps_output_gradient = false;  ///< whether the gradient of the result is among these
  /// The most bytes that the first half has allocated at a time, including the gradient of the result, and
  /// the most that the second half has in addition to what was there before it.
  BatchQuantity most_in_first, most_in_second;
};

/// A call of a block. Numbers of events that never happened are -1.
struct RecordedCall {
  int block = 0;
  int begins_at = -1, ends_at = -1;                    ///< events of forward
  int backward_begins_at = -1, backward_ends_at = -1;  ///< events of backward
  /// The event before which backward has come to the middle of the nodes that forward recorded.
  int backward_middle_at = -1;
  /// Allocations of the input, the result and the result's gradient; -1 if the step did not allocate them.
  int input = -1, output = -1, output_gradient = -1;
  RecordedHalves halves{};
};

/// An event of a step. Records have them in their order.
struct RecordedEvent {
  enum class Kind : uint8_t {
    kAllocate,        ///< of an allocation
    kFree,            ///< of an allocation
    kBlockBegins,     ///< a call, in forward
    kBlockEnds,       ///< a call, in forward
    kForwardEnds,     ///< the loss is there
    kBackwardBegins,  ///< of a call: the gradient of its result is there
    kBackwardEnds,    ///< of a call: the gradient of its input is there
    kGradient,        ///< of a parameter: it has been accumulated
  };
  Kind kind = Kind::kAllocate;
  int number = 0;  ///< of the allocation, call or parameter
};

/// One forward and backward of a module, as ModuleRecorder saw it: what each operator computed, and when
/// which memory was allocated and freed. Sizes are known for any number of examples. The record is plain
/// data: it holds no tensors, and plans of any layout are arithmetic on it.
///
/// Example:
///
///     std::cout << record.flops(/*examples=*/32) << " FLOPs, " << record.saved_bytes(32) << " bytes kept\n";
struct RecordedStep {
  std::vector<RecordedParameter> parameters;  ///< in the order of registration, each once
  std::vector<std::string> blocks;            ///< names, in the order of their first calls
  std::vector<RecordedCall> calls;            ///< in the order of forward
  std::vector<RecordedOperator> operators;
  std::vector<RecordedAllocation> allocations;
  std::vector<RecordedEvent> events;
  int64_t buffer_bytes = 0;
  BatchQuantity input_bytes;                      ///< of the tensors of a batch
  int64_t least_examples = 0, most_examples = 0;  ///< that were recorded

  /// Returns the sum over forward and backward for a micro-batch.
  double flops(int64_t examples) const;
  /// Returns the bytes that forward keeps for backward. Memory that several tensors share counts once, and
  /// parameters, buffers and inputs do not count.
  int64_t saved_bytes(int64_t examples) const;
  /// Returns the same for each block.
  std::vector<int64_t> saved_bytes_of_blocks(int64_t examples) const;
  /// Returns the bytes that were allocated and not yet freed after each event.
  std::vector<int64_t> live_bytes(int64_t examples) const;
  /// Returns the numbers of the blocks whose names begin with `prefix`, such as "blocks." of a Gpt.
  std::vector<size_t> blocks_named(const std::string& prefix) const;
  /// Returns the calls with which the blocks of a pipeline begin, for PlannedPipeline::blocks: each call of a
  /// block whose name begins with `prefix` is one, such as "blocks." of a Gpt, as are all calls before and
  /// after these. Throws InvalidArgument if there is no such call.
  std::vector<size_t> pipeline_blocks(const std::string& prefix) const;
};

}  // namespace lockstep
