#pragma once

#include <functional>
#include <memory>

#include "lockstep/strategies/coordinator/closure_values.h"

namespace lockstep {

/// The work of one closure on a worker, in three calls: prepare(), run(), finish(). If one throws, the later
/// ones are not made.
///
/// Example:
///
///     struct SquareWork : ClosureWork {
///       explicit SquareWork(int64_t given) : number(given) {}
///       ClosureValues run() override { return {number * number}; }
///       int64_t number;
///     };
class ClosureWork {
 public:
  virtual ~ClosureWork() = default;

  /// Called by a thread of its own, while an earlier closure may run.
  virtual void prepare() {}
  /// Called by the thread that serves closures, one closure after another.
  virtual ClosureValues run() = 0;
  /// Called with the results of run() by a thread of its own, while the next closure may run.
  virtual void finish(ClosureValues& /*results*/) {}

  /// Returns whether the worker asks for the next closure, and prepares it, while this one runs. Idle workers
  /// do not get that closure then.
  virtual bool looks_ahead() const { return false; }
};

/// Creates the work of a closure with these arguments. Called by the thread that prepares it.
using BeginClosure = std::function<std::unique_ptr<ClosureWork>(const ClosureValues& arguments)>;

}  // namespace lockstep
