#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace lockstep::measurement {

/// Has LibTorch count the bytes of all CPU tensors that the process allocates from then on, in all threads.
/// Call it before the first tensor is made. Memory that was allocated earlier is not counted.
void count_cpu_tensors();

/// Bytes that CPU tensors have now.
int64_t counted_bytes();
/// The most that they have had at a time since restart_counted_peak().
int64_t counted_peak();
void restart_counted_peak();

/// Counts the bytes that threads allocate for the account, until any thread frees them: those of
/// count_thread_in(), and others under a TensorAccountGuard. So the replicas of a process can be told apart,
/// which need most at different moments.
class TensorAccount {
 public:
  int64_t bytes() const { return bytes_; }
  /// The most that there were at a time since restart_peak().
  int64_t peak() const { return peak_; }
  void restart_peak() { peak_ = bytes_.load(); }
  void add(int64_t bytes);

 private:
  std::atomic<int64_t> bytes_{0};
  std::atomic<int64_t> peak_{0};
};

/// Counts in the account what this thread allocates from then on, such as a strategy's thread of a rank
/// between its runs, too. Null: in none.
void count_thread_in(std::shared_ptr<TensorAccount> account);

/// While it lives, what this thread allocates is counted in the account as well.
class TensorAccountGuard {
 public:
  explicit TensorAccountGuard(std::shared_ptr<TensorAccount> account);
  ~TensorAccountGuard();
  TensorAccountGuard(const TensorAccountGuard&) = delete;
  TensorAccountGuard& operator=(const TensorAccountGuard&) = delete;

 private:
  std::shared_ptr<TensorAccount> before_;
};

}  // namespace lockstep::measurement
