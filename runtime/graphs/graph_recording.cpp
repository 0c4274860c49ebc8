#include "lockstep/runtime/graphs/graph_recording.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

constexpr const char* kAborted = "[CudaGraph] the collectives of a captured function were aborted";

}  // namespace

GraphRecording::Launch::Launch(const std::vector<Observer>& observers) {
  try {
    for (const auto& observer : observers) launched_.push_back(observer());
  } catch (...) {
    tell(nullptr);
    throw;
  }
}

void GraphRecording::Launch::succeeded(DeviceGraphPool& pool) {
  if (!launched_.empty()) tell(pool.watch_stream());
}

void GraphRecording::Launch::tell(const std::function<bool()>& is_done) {
  for (const auto& launched : std::exchange(launched_, {})) launched(is_done);
}

void GraphRecording::begin(const std::vector<at::Tensor>& parameters) {
  for (const auto& parameter : parameters) {
    const at::Tensor& gradient = parameter.grad();
    gradients_.push_back({parameter, gradient, gradient.defined() ? gradient._version() : 0});
  }
  begin_part();
}

void GraphRecording::begin_part() {
  MutexLock lock(mutex_);
  if (is_dropped_) throw CollectiveAborted(kAborted);
  parts_.push_back({pool_->make_graph(), {}});
  parts_.back().graph->begin_capture();
  is_capturing_ = true;
}

void GraphRecording::end_part() {
  if (!launch_) launch_.emplace(observers_);
  {
    MutexLock lock(mutex_);
    is_capturing_ = false;
    parts_.back().graph->end_capture();
    if (is_dropped_) drop_graphs();
  }
  if (meet_) meet_();
  const auto actions = launch_last_part();
  if (meet_) meet_();
  for (const auto& action : actions) action();
}

/// Returns the actions that come after the part.
std::vector<GraphRecording::Action> GraphRecording::launch_last_part() {
  MutexLock lock(mutex_);
  if (is_dropped_) throw CollectiveAborted(kAborted);
  parts_.back().graph->replay();
  return parts_.back().actions;
}

void GraphRecording::interrupt(Action action) {
  end_part();
  action();
  after_launch(std::move(action));  // for replays, after the part that just ended
  begin_part();
}

void GraphRecording::after_launch(Action action) {
  MutexLock lock(mutex_);
  parts_.back().actions.push_back(std::move(action));
}

void GraphRecording::note_used_gradients(const std::vector<at::Tensor>& parameters) {
  for (auto& known : gradients_) {
    if (!known.before.defined() || !known.before.is_same(known.parameter.grad())) continue;
    if (std::any_of(parameters.begin(), parameters.end(),
                    [&](const at::Tensor& used) { return used.is_same(known.parameter); }))
      known.is_needed = true;
  }
}

void GraphRecording::end() {
  end_part();
  launch_->succeeded(*pool_);
  launch_.reset();
  for (auto& known : gradients_) {
    known.after = known.parameter.grad();
    if (!known.before.defined()) continue;
    if (known.before.is_same(known.after) || known.before._version() != known.version) known.is_needed = true;
    if (!known.is_needed) known.before.reset();  // the graph does not own its memory
  }
}

void GraphRecording::abandon() {
  MutexLock lock(mutex_);
  if (is_capturing_) {
    is_capturing_ = false;
    try {
      parts_.back().graph->end_capture();
    } catch (const c10::Error&) {
      // The error that broke the capture is already on its way to the caller.
    }
  }
  drop_graphs();
  launch_.reset();
}

bool GraphRecording::finds_gradients() const {
  return std::all_of(gradients_.begin(), gradients_.end(), [](const Gradient& known) {
    return !known.is_needed || known.before.is_same(known.parameter.grad());
  });
}

void GraphRecording::replay() {
  Launch launch(observers_);
  size_t num_parts = 0;
  {
    MutexLock lock(mutex_);
    num_parts = parts_.size();
  }
  for (size_t i = 0; i < num_parts; ++i) {
    const std::vector<Action>* actions = nullptr;
    {
      MutexLock lock(mutex_);
      if (is_dropped_) throw CollectiveAborted(kAborted);
      parts_[i].graph->replay();
      actions = &parts_[i].actions;  // nobody changes them any more
    }
    for (const auto& action : *actions) action();
  }
  launch.succeeded(*pool_);
  for (auto& known : gradients_) known.parameter.mutable_grad() = known.after;
}

void GraphRecording::drop() {
  MutexLock lock(mutex_);
  if (is_capturing_) {
    is_dropped_ = true;
  } else {
    drop_graphs();
  }
}

void GraphRecording::drop_graphs() {
  is_dropped_ = true;
  for (auto& part : parts_) part.graph.reset();
}

bool GraphRecording::is_usable() const {
  MutexLock lock(mutex_);
  return !is_dropped_;
}

}  // namespace lockstep
