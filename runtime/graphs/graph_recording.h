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

/// Records one replica's call of a function, to repeat it without calling it: device graphs, and the host's
/// actions between them. The replica's thread uses it, on the replica's stream. Any thread may call drop()
/// and is_usable().
///
/// Example:
///
///     GraphRecording recording(make_device_graph_pool(replica.device(), replica.generator()));
///     recording.begin(model->parameters());
///     train_step();
///     recording.end();
///     if (recording.finds_gradients()) recording.replay();
class GraphRecording {
 public:
  using Action = std::function<void()>;
  using Launched = std::function<void(std::function<bool()> is_done)>;
  using Observer = std::function<Launched()>;

  /// Calls `meet`, unless it is null, before and after the call's own work is launched. Pass a function that
  /// blocks until all replicas have called it, if graphs hold collectives that occupy a device until every
  /// rank has launched them: making a graph waits for the driver, which may wait for such a device.
  explicit GraphRecording(std::unique_ptr<DeviceGraphPool> pool, std::function<void()> meet = nullptr)
      : pool_(std::move(pool)), meet_(std::move(meet)) {}
  GraphRecording(const GraphRecording&) = delete;
  GraphRecording& operator=(const GraphRecording&) = delete;

  /// Begins the call: from now on the device's work is captured, not computed. The call may make, change or
  /// use the gradients of `parameters`.
  void begin(const std::vector<at::Tensor>& parameters);
  bool is_capturing() const { return is_capturing_; }
  /// Computes the work captured so far, then calls `action`, now and at this place of every replay. Use it
  /// for anything that a graph cannot hold, such as work on other streams and collectives.
  void interrupt(Action action);
  /// Calls `action` each time the work captured so far has been launched, in the call and in every replay.
  /// Use it for notes that the host takes.
  void after_launch(Action action);
  /// Calls `observer()` from now on before the work of the call, or of a replay, is launched; if it throws,
  /// that work is not launched. The function that it returns is called once: after the launch, with a
  /// function that tells from any thread and without waiting whether the device has done all of the work, or
  /// with null if not all of it was launched.
  void observe(Observer observer) { observers_.push_back(std::move(observer)); }
  /// Notes that the call uses the gradients that `parameters` have now. begin() must have been given these
  /// parameters.
  void note_used_gradients(const std::vector<at::Tensor>& parameters);
  /// Ends the call and computes the rest of its work. From now on, each replay ends by setting the
  /// parameters' gradients to the tensors that they are now. Throws errors of the observers.
  void end();
  /// Ends a call that has failed, and drops it. Does not throw.
  void abandon();

  /// Whether the gradients that a replay would add to or use are the tensors that the call found. Always true
  /// if the call made its own.
  bool finds_gradients() const;
  /// Repeats everything in its order. Throws errors of the actions and observers, and CollectiveAborted after
  /// drop().
  void replay();

  /// Destroys the graphs, and with them their hold on other objects, such as a communicator. If they are
  /// being captured, it does so when the capture ends.
  void drop();
  bool is_usable() const;

 private:
  struct Part {
    std::unique_ptr<DeviceGraph> graph;
    std::vector<Action> actions;  // Called after the graph.
  };
  struct Gradient {
    at::Tensor parameter;
    at::Tensor before;       // When the call began.
    int64_t version = 0;     // Of `before`.
    bool is_needed = false;  // The call adds to it or uses it.
    at::Tensor after = {};   // When the call ended.
  };

  /// Calls the observers of one launch.
  class Launch {
   public:
    explicit Launch(const std::vector<Observer>& observers);
    ~Launch() { tell(nullptr); }
    Launch(const Launch&) = delete;
    Launch& operator=(const Launch&) = delete;
    /// Tells the observers that all work is launched, on the calling thread's current stream.
    void succeeded(DeviceGraphPool& pool);

   private:
    void tell(const std::function<bool()>& is_done);

    std::vector<Launched> launched_;
  };

  void begin_part();
  void end_part();
  std::vector<Action> launch_last_part();
  void drop_graphs() LOCKSTEP_REQUIRES(mutex_);

  std::unique_ptr<DeviceGraphPool> pool_;  // Outlives the graphs.
  const std::function<void()> meet_;
  std::vector<Gradient> gradients_;
  std::vector<Observer> observers_;
  std::optional<Launch> launch_;  // Of the call itself.
  bool is_capturing_ = false;     // Written by the replica's thread, under the mutex.
  mutable Mutex mutex_;
  std::vector<Part> parts_ LOCKSTEP_GUARDED_BY(mutex_);
  bool is_dropped_ LOCKSTEP_GUARDED_BY(mutex_) = false;
};

}  // namespace lockstep
