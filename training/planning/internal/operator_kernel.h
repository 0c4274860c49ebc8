#pragma once

#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace lockstep {

/// While it lives, StepLog::of_thread() gets to know each operator that this thread calls, and those that
/// backward calls on its behalf, and each node that backward comes to.
class OperatorKernelGuard {
 public:
  OperatorKernelGuard();
  ~OperatorKernelGuard();
  OperatorKernelGuard(const OperatorKernelGuard&) = delete;
  OperatorKernelGuard& operator=(const OperatorKernelGuard&) = delete;

 private:
  c10::impl::IncludeDispatchKeyGuard guard_;
  at::CallbackHandle nodes_;
  at::CallbackHandle collectives_;
};

}  // namespace lockstep
