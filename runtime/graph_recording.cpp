#include "lockstep/runtime/graph_recording.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

namespace lockstep {

void GraphRecording::begin(const std::vector<at::Tensor>& parameters) {
  for (const auto& parameter : parameters) gradients_.push_back({parameter, parameter.grad()});
  begin_part();
}

void GraphRecording::begin_part() {
  parts_.push_back({pool_->make_graph(), {}});
  parts_.back().graph->begin_capture();
  is_capturing_ = true;
}

void GraphRecording::end_part() {
  is_capturing_ = false;
  parts_.back().graph->end_capture();
  parts_.back().graph->replay();
}

void GraphRecording::interrupt(Action action) {
  end_part();
  action();
  parts_.back().actions.push_back(std::move(action));
  begin_part();
}

void GraphRecording::at_replay(Action action) {
  parts_.back().actions.push_back(std::move(action));
}

void GraphRecording::end() {
  end_part();
  for (auto& [parameter, gradient, was_there_before] : gradients_) {
    was_there_before = gradient.defined() && gradient.is_same(parameter.grad());
    gradient = parameter.grad();
  }
}

void GraphRecording::abandon() {
  if (!std::exchange(is_capturing_, false)) return;
  try {
    parts_.back().graph->end_capture();
  } catch (const c10::Error&) {
    // What broke the capture is on its way to the caller.
  }
}

bool GraphRecording::finds_gradients() const {
  return std::all_of(gradients_.begin(), gradients_.end(), [](const Gradient& known) {
    return !known.was_there_before || known.gradient.is_same(known.parameter.grad());
  });
}

void GraphRecording::replay() {
  for (const auto& part : parts_) {
    part.graph->replay();
    for (const auto& action : part.actions) action();
  }
  for (auto& [parameter, gradient, was_there_before] : gradients_) parameter.mutable_grad() = gradient;
}

}  // namespace lockstep
