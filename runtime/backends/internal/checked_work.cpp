#include "lockstep/runtime/backends/internal/checked_work.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/collectives/internal/collective_description.h"
#include "lockstep/runtime/devices/error_text.h"

namespace lockstep {
namespace {

/// Whether CUDA failed, rather than the collective.
bool is_device_error(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const c10::AcceleratorError&) {
    return true;
  } catch (const c10::OutOfMemoryError&) {
    return true;
  } catch (...) {
    return false;
  }
}

/// The collectives of a launched graph.
class ReplayedWork : public c10d::Work {
 public:
  explicit ReplayedWork(std::function<bool()> is_done) : is_done_(std::move(is_done)) {}
  bool isCompleted() override { return is_done_(); }

 private:
  const std::function<bool()> is_done_;
};

}  // namespace

void CheckedWork::join() {
  const auto joined = order_->join(info_->rank, launch_.description);
  sequence_ = joined.sequence;
  if (joined.is_complete && info_->on_joined) info_->on_joined(sequence_, launch_.description);
}

void CheckedWork::start(c10d::Backend& inner) {
  begin_ = std::chrono::steady_clock::now();
  try {
    // The backend keeps the tensors it needs. If this object kept them, it would keep their history alive,
    // and with it the channel if the history contains a collective.
    works_ = std::exchange(launch_.start, nullptr)(inner);
    state_ = State::kStarted;
  } catch (...) {
    state_ = State::kRefused;
    explain(std::current_exception());
  }
}

void CheckedWork::follow(std::function<bool()> is_done) {
  begin_ = std::chrono::steady_clock::now();
  const bool was_launched = is_done != nullptr;
  if (was_launched) works_ = {c10::make_intrusive<ReplayedWork>(std::move(is_done))};
  state_ = was_launched ? State::kStarted : State::kRefused;
}

bool CheckedWork::isCompleted() {
  if (state_ != State::kStarted) return state_ == State::kRefused;
  return std::all_of(works_.begin(), works_.end(), [](const auto& work) { return work->isCompleted(); });
}

std::exception_ptr CheckedWork::exception() const {
  if (state_ == State::kRefused) return std::make_exception_ptr(BackendError("it was not launched"));
  if (state_ == State::kJoined) return nullptr;
  for (const auto& work : works_) {
    if (auto error = work->exception()) return error;
  }
  return nullptr;
}

bool CheckedWork::wait(std::chrono::milliseconds timeout) {
  try {
    for (const auto& work : works_) work->wait(timeout);
  } catch (...) {
    explain(std::current_exception());
  }
  // Aborting a communicator ends its kernels, and the tensors' contents then mean nothing.
  if (const auto aborted = order_->abort_error()) std::rethrow_exception(aborted);
  if (auto finish = std::exchange(launch_.finish, nullptr)) finish();
  return true;
}

void CheckedWork::check() {
  if (auto error = exception()) explain(error);
}

/// Throws the backend's error in terms of replicas; the device's own errors stay as they are.
void CheckedWork::explain(const std::exception_ptr& error) const {
  if (is_device_error(error)) std::rethrow_exception(error);
  if (const auto aborted = order_->abort_error()) std::rethrow_exception(aborted);
  const auto elapsed = std::chrono::steady_clock::now() - begin_;
  const auto missing = order_->missing(sequence_);
  const CollectiveCall call{sequence_, info_->rank, launch_.description};
  if (!missing.empty() && elapsed >= info_->timeout)
    throw CollectiveAborted(timed_out(call, info_->timeout, missing));
  const BackendError failed(c10::str("[", info_->op, "] replica ", info_->rank, " (", info_->device.str(),
                                     "): ", call.description, " (collective #", sequence_,
                                     ") failed: ", error_line(error)));
  const auto cause = info_->find_cause ? info_->find_cause() : nullptr;
  if (cause) std::rethrow_exception(cause);
  // Others may have found the cause in the meantime.
  if (const auto aborted = order_->abort_error()) std::rethrow_exception(aborted);
  throw failed;
}

}  // namespace lockstep
