#include "lockstep/runtime/backends/internal/backend_connection.h"

#include <c10/util/StringUtil.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/internal/call_at_once.h"
#include "lockstep/runtime/base/internal/deadline.h"
#include "lockstep/runtime/devices/error_text.h"
#include "lockstep/runtime/workers/interruptible_store.h"

namespace lockstep {
namespace {

// How long a released thread may take to end, if the timeout is not shorter.
constexpr std::chrono::milliseconds kGrace{5000};

/// Returns a function that makes a backend's call and ignores its errors: the backend is given up.
std::function<void()> quietly(const c10::intrusive_ptr<c10d::Backend>& backend,
                              void (*call)(c10d::Backend&)) {
  return [backend, call] {
    try {
      if (backend) call(*backend);
    } catch (...) {
    }
  };
}

}  // namespace

void abort_all(const std::vector<c10::intrusive_ptr<c10d::Backend>>& backends,
               const std::function<void()>& meanwhile) {
  std::vector<std::function<void()>> calls;
  if (meanwhile) calls.push_back(meanwhile);
  for (const auto& backend : backends)
    calls.push_back(quietly(backend, [](c10d::Backend& given) { given.abort(); }));
  call_at_once(calls);
}

void shut_down_all(const std::vector<c10::intrusive_ptr<c10d::Backend>>& backends) {
  std::vector<std::function<void()>> calls;
  for (const auto& backend : backends)
    calls.push_back(quietly(backend, [](c10d::Backend& given) { given.shutdown(); }));
  call_at_once(calls);
}

void BackendConnection::fail(int rank, std::exception_ptr error) {
  MutexLock lock(mutex_);
  if (!error_) {
    error_ = std::move(error);
    failed_rank_ = rank;
  }
  *interrupted_ = true;
  changed_.notify_all();
}

void BackendConnection::connect_rank(size_t local, const BackendFactory& factory,
                                     const BackendRequest& request) {
  try {
    auto backend = factory(request);
    if (!backend) throw InvalidArgument("expected a backend of the factory, but got none");
    if (backend->getRank() != request.rank || backend->getSize() != request.size) {
      throw InvalidArgument(c10::str("expected a backend of rank ", request.rank, " of ", request.size,
                                     ", but got one of rank ", backend->getRank(), " of ",
                                     backend->getSize()));
    }
    bool continues = false;
    {
      MutexLock lock(mutex_);
      made_[local] = backend;
      ++num_made_;
      changed_.notify_all();
      // If a rank cannot be made, the others learn it before they wait where nothing can release them.
      while (!is_all_made_ && !error_) changed_.wait(mutex_);
      continues = !error_;
    }
    if (continues) {
      backend->eagerConnectSingleDevice(request.device.torch_device());
      MutexLock lock(mutex_);
      ++num_connected_;
    }
  } catch (...) {
    fail(request.rank, std::current_exception());
  }
  MutexLock lock(mutex_);
  --num_running_;
  changed_.notify_all();
}

void BackendConnection::start_threads(const BackendFactory& factory, int generation) {
  for (size_t local = 0; local < request_.devices.size(); ++local) {
    auto client = c10::make_intrusive<InterruptibleStore>(
        request_.store, [interrupted = interrupted_] { return interrupted->load(); }, request_.timeout);
    const BackendRequest request{
        .rank = request_.first_rank + static_cast<int>(local),
        .size = request_.num_ranks,
        .device = request_.devices[local],
        .store = c10::make_intrusive<c10d::PrefixStore>(std::to_string(generation), std::move(client)),
        .timeout = request_.timeout,
        .generation = generation};
    {
      MutexLock lock(mutex_);
      ++num_running_;
    }
    try {
      threads_.emplace_back([self = shared_from_this(), local, factory, request] {
        self->connect_rank(local, factory, request);
      });
    } catch (...) {
      {
        MutexLock lock(mutex_);
        --num_running_;
      }
      fail(request.rank, std::current_exception());
      return;
    }
  }
}

void BackendConnection::meet_others() {
  {
    MutexLock lock(mutex_);
    if (error_) return;
  }
  try {
    if (request_.meet_others) request_.meet_others();
  } catch (...) {
    fail(kNoRank, std::current_exception());
  }
  MutexLock lock(mutex_);
  is_all_made_ = true;
  changed_.notify_all();
}

/// Joins the threads, or detaches all of them if one has not ended within `grace`.
void BackendConnection::finish_threads(std::chrono::milliseconds grace) {
  const auto deadline = deadline_after(grace);
  bool all_ended = false;
  {
    MutexLock lock(mutex_);
    while (num_running_ > 0 && changed_.wait_until(mutex_, deadline)) {
    }
    all_ended = num_running_ == 0;
  }
  for (auto& thread : threads_) {
    if (all_ended) {
      thread.join();
    } else {
      thread.detach();
    }
  }
  threads_.clear();
}

void BackendConnection::release() {
  std::vector<c10::intrusive_ptr<c10d::Backend>> made;
  {
    MutexLock lock(mutex_);
    made = made_;
  }
  abort_all(made);
}

void BackendConnection::rethrow() const {
  MutexLock lock(mutex_);
  std::vector<std::string> names;
  for (const auto& device : request_.devices) names.push_back(device.str());
  const std::string who =
      failed_rank_ == kNoRank
          ? ""
          : c10::str("replica ", failed_rank_, " (",
                     names[static_cast<size_t>(failed_rank_ - request_.first_rank)], "): ");
  const std::string text = c10::str("[", request_.op, "] could not connect ", c10::Join(" ", names), ": ",
                                    who, error_line(error_));
  try {
    std::rethrow_exception(error_);
  } catch (const InvalidArgument&) {
    throw InvalidArgument(text);
  } catch (const CollectiveAborted&) {
    throw;
  } catch (const CollectiveMismatch&) {
    throw;
  } catch (const ClusterError&) {
    throw;
  } catch (...) {
    throw BackendError(text);
  }
}

std::vector<c10::intrusive_ptr<c10d::Backend>> BackendConnection::connect(const BackendFactory& factory,
                                                                          int generation) {
  const size_t count = request_.devices.size();
  start_threads(factory, generation);
  const auto deadline = deadline_after(request_.timeout);
  bool in_time = true;
  {
    MutexLock lock(mutex_);
    while (num_made_ < count && !error_ && in_time) in_time = changed_.wait_until(mutex_, deadline);
  }
  if (in_time) meet_others();
  bool failed = false;
  {
    MutexLock lock(mutex_);
    while (num_connected_ < count && !error_ && in_time) in_time = changed_.wait_until(mutex_, deadline);
    if (num_connected_ < count && !error_) {
      error_ = std::make_exception_ptr(std::runtime_error(
          c10::str("timed out after ", std::chrono::duration<double>(request_.timeout).count(), " s")));
      *interrupted_ = true;
      changed_.notify_all();
    }
    failed = error_ != nullptr;
  }
  if (failed) {
    release();
    finish_threads(std::min(kGrace, request_.timeout));
    release();  // backends made in the meantime
    MutexLock lock(mutex_);
    made_.clear();
    lock.unlock();
    rethrow();
  }
  finish_threads(std::chrono::milliseconds::max());
  MutexLock lock(mutex_);
  return std::move(made_);
}

void BackendConnection::abort(std::exception_ptr error) {
  fail(kNoRank, std::move(error));
}

}  // namespace lockstep
