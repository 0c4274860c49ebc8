#pragma once

#include <ATen/Parallel.h>

#include <future>
#include <thread>
#include <utility>

namespace lockstep {

/// Makes ATen's operators use `count` threads in the calling thread from now on.
inline void set_intra_op_threads(int count) {
  // Initialises ATen in this thread. Otherwise its first use of ATen would replace `count` by the default.
  at::get_num_threads();
  at::set_num_threads(count);
}

/// Restores the number of threads of ATen's operators on destruction: in the calling thread, and for threads
/// that use ATen for the first time. at::set_num_threads() sets both, whichever thread calls it. If you start
/// threads that set a number of their own, hold this guard until they have set it.
///
/// Example:
///
///     const IntraOpThreadsGuard one_thread(1);
///     const auto product = at::matmul(a, b);
class IntraOpThreadsGuard {
 public:
  IntraOpThreadsGuard() = default;
  /// Also sets `count` threads in the calling thread until then.
  explicit IntraOpThreadsGuard(int count) { at::set_num_threads(count); }
  ~IntraOpThreadsGuard() { at::set_num_threads(before_); }
  IntraOpThreadsGuard(const IntraOpThreadsGuard&) = delete;
  IntraOpThreadsGuard& operator=(const IntraOpThreadsGuard&) = delete;

 private:
  const int before_ = at::get_num_threads();
};

/// Starts a thread in which ATen's operators use `intra_op_threads` threads. Pass 1 for threads other
/// than the replicas', which own the cores. Blocks until that is set. Throws std::system_error if the system
/// has no thread left.
template <typename Work>
std::thread start_thread(int intra_op_threads, Work work) {
  const IntraOpThreadsGuard keep;
  std::promise<void> is_set;
  const auto set = is_set.get_future();
  std::thread thread([intra_op_threads, work = std::move(work), is_set = std::move(is_set)]() mutable {
    set_intra_op_threads(intra_op_threads);
    is_set.set_value();
    work();
  });
  set.wait();
  return thread;
}

}  // namespace lockstep
