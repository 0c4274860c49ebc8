#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/mutex.h"
#include "lockstep/runtime/graphs/device_graph.h"

namespace lockstep {

/// One replica's call of a function, to be repeated without calling it: device graphs, and between them what
/// the host has to do. Used by its replica's thread, on its replica's stream; any thread may call drop() and
/// is_usable().
class GraphRecording {
 public:
  using Action = std::function<void()>;
  using Launched = std::function<void(std::function<bool()> is_done)>;
  using Observer = std::function<Launched()>;

  explicit GraphRecording(std::unique_ptr<DeviceGraphPool> pool) : pool_(std::move(pool)) {}
  GraphRecording(const GraphRecording&) = delete;
  GraphRecording& operator=(const GraphRecording&) = delete;

  /// The call begins: from now on the device's work is captured, not computed. The call may make, change or
  /// use the gradients of `parameters`.
  void begin(const std::vector<at::Tensor>& parameters);
  bool is_capturing() const { return is_capturing_; }
  /// For what a graph cannot hold, such as work on other streams and meeting other replicas: the work so far
  /// is computed, then `action` done, now and at this place of every replay.
  void interrupt(Action action);
  /// What the host notes down of the work so far once that is launched: in the call and in every replay.
  void after_launch(Action action);
  /// From now on `observer()` is called before the call's work, or a replay's, is launched; what it throws
  /// keeps that from being launched. What it returns is called once in turn: after the launch with what
  /// tells, from any thread and without waiting, whether the device has done all of it; with null where not
  /// all of it was launched.
  void observe(Observer observer) { observers_.push_back(std::move(observer)); }
  /// The gradients of `parameters`, which begin() knows, are used just now.
  void note_used_gradients(const std::vector<at::Tensor>& parameters);
  /// The call ends: the rest of its work is computed. At every replay's end the parameters' gradients are the
  /// tensors that they are now. Throws what the observers throw.
  void end();
  /// Ends a call that has failed, and drops it. Does not throw.
  void abandon();

  /// Whether a replay would find the gradients that it adds to or uses where the call found them. Always,
  /// where the call made its own.
  bool finds_gradients() const;
  /// Everything again, in its order. Throws what the actions and observers throw, and CollectiveAborted once
  /// dropped.
  void replay();

  /// Destroys the graphs, and with them what holds on to others, such as a communicator: at once, or where
  /// they are being captured when that ends.
  void drop();
  bool is_usable() const;

 private:
  struct Part {
    std::unique_ptr<DeviceGraph> graph;
    std::vector<Action> actions;  // after it
  };
  struct Gradient {
    at::Tensor parameter;
    at::Tensor before;       // when the call began
    int64_t version = 0;     // of `before`
    bool is_needed = false;  // the call adds to it or uses it
    at::Tensor after = {};   // when the call ended
  };

  /// The observers' view of one launch.
  class Launch {
   public:
    explicit Launch(const std::vector<Observer>& observers);
    ~Launch() { tell(nullptr); }
    Launch(const Launch&) = delete;
    Launch& operator=(const Launch&) = delete;
    /// All has been launched, on the calling thread's current stream.
    void succeeded(DeviceGraphPool& pool);

   private:
    void tell(const std::function<bool()>& is_done);

    std::vector<Launched> launched_;
  };

  void begin_part();
  void end_part();
  void drop_graphs() LOCKSTEP_REQUIRES(mutex_);

  std::unique_ptr<DeviceGraphPool> pool_;  // outlives the graphs
  std::vector<Gradient> gradients_;
  std::vector<Observer> observers_;
  std::optional<Launch> launch_;  // the call's own
  bool is_capturing_ = false;     // written by the replica's thread, with the mutex
  mutable Mutex mutex_;
  std::vector<Part> parts_ LOCKSTEP_GUARDED_BY(mutex_);
  bool is_dropped_ LOCKSTEP_GUARDED_BY(mutex_) = false;
};

}  // namespace lockstep
