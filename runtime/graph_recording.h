#pragma once

// Internal: only sources of its layer need it.

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "lockstep/runtime/device_graph.h"

namespace lockstep {

/// One replica's call of a function, to be repeated without calling it: device graphs, and between them what
/// the host has to do. Used by its replica's thread only, on its replica's stream.
class GraphRecording {
 public:
  using Action = std::function<void()>;

  explicit GraphRecording(std::unique_ptr<DeviceGraphPool> pool) : pool_(std::move(pool)) {}
  GraphRecording(const GraphRecording&) = delete;
  GraphRecording& operator=(const GraphRecording&) = delete;

  /// The call begins: from now on the device's work is captured, not computed. The call may make or change
  /// the gradients of `parameters`.
  void begin(const std::vector<at::Tensor>& parameters);
  bool is_capturing() const { return is_capturing_; }
  /// For what a graph cannot hold, such as work on other streams and meeting other replicas: the work so far
  /// is computed, then `action` done, now and at this place of every replay.
  void interrupt(Action action);
  /// What the host notes down in the call besides, at this place of every replay; not now.
  void at_replay(Action action);
  /// The call ends: the rest of its work is computed. At every replay's end the parameters' gradients are the
  /// tensors that they are now.
  void end();
  /// Ends a call that has failed. Does not throw.
  void abandon();

  /// Whether a replay would add to the very gradients that the call has added to. Always, where it made its
  /// own.
  bool finds_gradients() const;
  /// Everything again, in its order. Throws what the actions throw.
  void replay();

 private:
  struct Part {
    std::unique_ptr<DeviceGraph> graph;
    std::vector<Action> actions;  // after it
  };
  struct Gradient {
    at::Tensor parameter;
    at::Tensor gradient;
    bool was_there_before = false;  // at the begin, and was added to
  };

  void begin_part();
  void end_part();

  std::unique_ptr<DeviceGraphPool> pool_;  // outlives the graphs
  std::vector<Part> parts_;
  std::vector<Gradient> gradients_;
  bool is_capturing_ = false;
};

}  // namespace lockstep
