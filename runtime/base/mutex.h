#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

// Clang's -Wthread-safety checks at compile time that a GUARDED_BY member is touched only under its mutex.
// The wrappers below exist because libstdc++'s std::mutex has no annotations. For other compilers the macros
// are empty.
#if defined(__clang__)
#define LOCKSTEP_ANNOTATE(x) __attribute__((x))
#else
#define LOCKSTEP_ANNOTATE(x)
#endif
#define LOCKSTEP_GUARDED_BY(x) LOCKSTEP_ANNOTATE(guarded_by(x))
#define LOCKSTEP_REQUIRES(...) LOCKSTEP_ANNOTATE(requires_capability(__VA_ARGS__))

namespace lockstep {

/// A std::mutex that clang's thread-safety analysis understands.
///
/// Example:
///
///     Mutex mutex_;
///     int count_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
class LOCKSTEP_ANNOTATE(capability("mutex")) Mutex {
 public:
  void lock() LOCKSTEP_ANNOTATE(acquire_capability()) { mutex_.lock(); }
  void unlock() LOCKSTEP_ANNOTATE(release_capability()) { mutex_.unlock(); }

 private:
  friend class ConditionVariable;
  std::mutex mutex_;
};

/// Holds a Mutex while it lives. unlock() and lock() release it for a while.
///
/// Example:
///
///     MutexLock lock(mutex_);
///     ++count_;
class LOCKSTEP_ANNOTATE(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) LOCKSTEP_ANNOTATE(acquire_capability(mutex)) : mutex_(mutex) {
    mutex_.lock();
  }
  ~MutexLock() LOCKSTEP_ANNOTATE(release_capability()) {
    if (held_) mutex_.unlock();
  }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void unlock() LOCKSTEP_ANNOTATE(release_capability()) {
    mutex_.unlock();
    held_ = false;
  }
  void lock() LOCKSTEP_ANNOTATE(acquire_capability()) {
    mutex_.lock();
    held_ = true;
  }

 private:
  Mutex& mutex_;
  bool held_ = true;
};

/// A std::condition_variable over Mutex. Waits may wake without cause, so loop over the condition.
///
/// Example:
///
///     MutexLock lock(mutex_);
///     while (!is_ready_) changed_.wait(mutex_);
class ConditionVariable {
 public:
  void wait(Mutex& mutex) LOCKSTEP_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }

  /// Returns false if `deadline` passed first.
  bool wait_until(Mutex& mutex, std::chrono::steady_clock::time_point deadline) LOCKSTEP_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    // Waits on the system clock, because that is the only timed wait of this libstdc++ that ThreadSanitizer
    // knows. The remaining time is measured on the steady clock, so a changed wall clock costs at most one
    // early wake-up.
    const auto left = deadline - std::chrono::steady_clock::now();
    condition_.wait_until(lock, std::chrono::system_clock::now() + left);
    lock.release();
    return std::chrono::steady_clock::now() < deadline;
  }

  void notify_one() { condition_.notify_one(); }
  void notify_all() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace lockstep
