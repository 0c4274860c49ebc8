#pragma once

#include <functional>
#include <memory>

#include "lockstep/strategies/coordinator/closure_values.h"

namespace lockstep {

/// What a worker does with one closure: the three calls, in this order. Where one throws, those after it are
/// not made.
class ClosureWork {
 public:
  virtual ~ClosureWork() = default;

  /// By a thread of its own, while an earlier closure may run.
  virtual void prepare() {}
  /// By the thread that serves closures, one after another.
  virtual ClosureValues run() = 0;
  /// By a thread of its own, while the next closure may run. `results` is what run() has returned.
  virtual void finish(ClosureValues& /*results*/) {}

  /// Whether the next closure is to be asked for, and prepared, while this one runs. So it is kept from
  /// workers that have nothing to do.
  virtual bool looks_ahead() const { return false; }
};

/// Begins the work on a closure with these arguments, by the thread that prepares it.
using BeginClosure = std::function<std::unique_ptr<ClosureWork>(const ClosureValues& arguments)>;

}  // namespace lockstep
