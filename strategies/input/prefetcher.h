#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/mutex.h"
#include "lockstep/runtime/devices/intra_op_threads.h"

namespace lockstep {

/// Makes items `first`, `first` + 1, ... ahead of their use on background threads, and returns them in order.
///
/// Example:
///
///     Prefetcher<int64_t> squares([](int64_t n) { return n < 10 ? std::optional(n * n) : std::nullopt; },
///                                 /*first=*/0, /*depth=*/2, /*num_workers=*/1);
///     while (auto square = squares.next()) std::cout << *square << "\n";
template <typename Item>
class Prefetcher {
 public:
  /// Makes item number n, or returns nothing if there are only n items. Called once for each number, in
  /// order; by several threads at the same time if there are several workers.
  using Make = std::function<std::optional<Item>(int64_t)>;

  /// Keeps up to `depth` items ready. With 0, next() makes each item itself, without threads. Depth and
  /// number of workers do not change the items or the place of an error.
  Prefetcher(Make make, int64_t first, int depth, int num_workers)
      : make_(std::move(make)), next_out_(first), next_in_(first), depth_(depth) {
    if (depth > 0) start(num_workers);
  }

  /// Blocks until items that are being made are finished.
  ~Prefetcher() { stop(); }
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  /// Returns the next item, or nothing at the end. Blocks until it is made. Rethrows an error of making it at
  /// its place in the order. After the end or an error, every further call does the same.
  std::optional<Item> next() {
    MutexLock lock(mutex_);
    if (!last_) {
      Slot slot = take_next();
      if (slot.item) return std::move(slot.item);
      last_ = std::move(slot);
    }
    if (last_->error) std::rethrow_exception(last_->error);
    return std::nullopt;
  }

 private:
  struct Slot {
    std::optional<Item> item;
    std::exception_ptr error;
  };

  void start(int num_workers) {
    try {
      // Replicas own the cores; a worker that took all of them would slow every step.
      for (int worker = 0; worker < num_workers; ++worker)
        threads_.push_back(start_thread(1, [this] { work(); }));
    } catch (...) {
      stop();  // the system has no thread left: those that run must not outlive this object
      throw;
    }
  }

  void stop() {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
      changed_.notify_all();
    }
    for (auto& thread : threads_) thread.join();
  }

  Slot make(int64_t number) const {
    Slot slot;
    try {
      slot.item = make_(number);
    } catch (...) {
      slot.error = std::current_exception();
    }
    return slot;
  }

  Slot take_next() LOCKSTEP_REQUIRES(mutex_) {
    const int64_t number = next_out_;
    if (!threads_.empty()) {
      while (!ready_.contains(number)) changed_.wait(mutex_);
    }
    ++next_out_;
    if (threads_.empty()) return make(number);
    changed_.notify_all();
    return std::move(ready_.extract(number).mapped());
  }

  void work() {
    while (true) {
      int64_t number = 0;
      {
        MutexLock lock(mutex_);
        while (!stopping_ && !ended_ && next_in_ >= next_out_ + depth_) changed_.wait(mutex_);
        if (stopping_ || ended_) return;
        number = next_in_++;
      }
      Slot slot = make(number);
      MutexLock lock(mutex_);
      if (!slot.item) ended_ = true;
      ready_.emplace(number, std::move(slot));
      changed_.notify_all();
    }
  }

  const Make make_;
  Mutex mutex_;
  ConditionVariable changed_;
  std::map<int64_t, Slot> ready_ LOCKSTEP_GUARDED_BY(mutex_);
  std::optional<Slot> last_ LOCKSTEP_GUARDED_BY(mutex_);  // the end or error, once next() met it
  int64_t next_out_ LOCKSTEP_GUARDED_BY(mutex_);
  int64_t next_in_ LOCKSTEP_GUARDED_BY(mutex_);
  bool ended_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  bool stopping_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  const int depth_;
  std::vector<std::thread> threads_;
};

}  // namespace lockstep
