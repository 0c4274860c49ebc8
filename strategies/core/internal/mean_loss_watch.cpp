#include "lockstep/strategies/core/internal/mean_loss_watch.h"

#include <ATen/core/Reduction.h>
#include <ATen/core/ivalue.h>

#include <array>
#include <memory>
#include <string_view>

namespace lockstep {
namespace {

struct LossOperator {
  std::string_view node;  ///< in the graph
  std::string_view call;  ///< that the node makes
  size_t reduction;       ///< position of the argument
};

constexpr std::array kLosses{
    LossOperator{"NllLossBackward0", "aten::nll_loss_backward", 4},
    LossOperator{"NllLoss2DBackward0", "aten::nll_loss2d_backward", 4},
    LossOperator{"MseLossBackward0", "aten::mse_loss_backward", 3},
    LossOperator{"BinaryCrossEntropyBackward0", "aten::binary_cross_entropy_backward", 4},
    LossOperator{"SmoothL1LossBackward0", "aten::smooth_l1_loss_backward", 3},
    LossOperator{"HuberLossBackward0", "aten::huber_loss_backward", 3},
};

// LibTorch calls observers as plain functions, without an extra argument.
thread_local MeanLossWatch* watch_of_thread = nullptr;

}  // namespace

MeanLossWatch::MeanLossWatch() {
  watch_of_thread = this;
  const auto look = [](const at::RecordFunction& call) -> std::unique_ptr<at::ObserverContext> {
    if (watch_of_thread != nullptr) watch_of_thread->look(call);
    return nullptr;
  };
  callback_ = at::addThreadLocalCallback(at::RecordFunctionCallback(look).needsInputs(true).scopes(
      {at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
}

MeanLossWatch::~MeanLossWatch() {
  at::removeCallback(callback_);
  watch_of_thread = nullptr;
}

void MeanLossWatch::look(const at::RecordFunction& call) {
  if (state_ == State::kMean || state_ == State::kOther) return;
  if (call.scope() == at::RecordScope::BACKWARD_FUNCTION) return enter_node(call.name());
  if (state_ != State::kInLoss) return;
#ifndef NDEBUG
  // RecordFunction::inputs() asserts a flag that LibTorch, which is built with NDEBUG, never sets. So a build
  // with assertions does not tell LibTorch's losses.
  state_ = State::kOther;
#else
  const std::string_view name = call.name();
  for (const auto& loss : kLosses) {
    if (name != loss.call || call.inputs().size() <= loss.reduction) continue;
    const c10::IValue& reduction = call.inputs()[loss.reduction];
    state_ = reduction.isInt() && reduction.toInt() == at::Reduction::Mean ? State::kMean : State::kOther;
    return;
  }
#endif
}

void MeanLossWatch::enter_node(const std::string& name) {
  if (name == "MeanBackward0") {
    state_ = State::kMean;
    return;
  }
  for (const auto& loss : kLosses) {
    if (name != loss.node) continue;
    state_ = State::kInLoss;
    return;
  }
  // A sum of losses, and a conversion of one, hand the gradient on as it is.
  const bool keeps_scale = name == "AddBackward0" || name == "ToCopyBackward0" || name == "CloneBackward0";
  state_ = keeps_scale ? State::kAtScalars : State::kOther;
}

}  // namespace lockstep
