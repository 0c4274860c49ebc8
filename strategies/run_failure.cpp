#include "lockstep/strategies/run_failure.h"

#include <c10/util/StringUtil.h>

#include "lockstep/runtime/errors.h"

namespace lockstep {
namespace {

bool is_consequence(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const CollectiveAborted&) {
    return true;
  } catch (...) {
    return false;
  }
}

std::string message_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const c10::Error& caught) {
    return caught.what_without_backtrace();
  } catch (const std::exception& caught) {
    return caught.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

/// LibTorch's complaints about a module or its input, as opposed to errors of our own or of the user's.
bool is_module_error(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const c10::OutOfMemoryError&) {
    return false;
  } catch (const c10::DistError&) {
    return false;
  } catch (const c10::Error&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

void RunFailure::record(int replica, std::exception_ptr error) {
  const bool cause = !is_consequence(error);
  MutexLock lock(mutex_);
  if (error_ && (is_cause_ || !cause)) return;
  error_ = std::move(error);
  replica_ = replica;
  is_cause_ = cause;
}

bool RunFailure::happened() const {
  MutexLock lock(mutex_);
  return error_ != nullptr;
}

std::string RunFailure::reason() const {
  MutexLock lock(mutex_);
  return c10::str("replica ", replica_, " failed: ", message_of(error_));
}

void RunFailure::rethrow(const std::string& strategy, const Devices& devices,
                         const std::optional<BatchSizes>& sizes) const {
  MutexLock lock(mutex_);
  if (replica_ >= 0 && sizes && sizes->local.at(static_cast<size_t>(replica_)) <= 1 &&
      is_module_error(error_)) {
    throw std::runtime_error(c10::str("[", strategy, "] replica ", replica_, " (",
                                      devices[static_cast<size_t>(replica_)].str(), ") failed on a shard of ",
                                      sizes->local[static_cast<size_t>(replica_)], " of the ", sizes->global,
                                      " examples in its global batch: ", message_of(error_),
                                      "\nIf the module cannot train on so few, use a dataset with "
                                      ".drop_remainder = true or a larger global batch."));
  }
  std::rethrow_exception(error_);
}

}  // namespace lockstep
