#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>

namespace lockstep {

/// While it lives, StepLog::of_thread() gets to know each operator that this thread calls, and those that
/// backward calls on its behalf.
class OperatorKernelGuard {
 public:
  OperatorKernelGuard();

 private:
  c10::impl::IncludeDispatchKeyGuard guard_;
};

}  // namespace lockstep
