#pragma once

#include <ATen/Parallel.h>

namespace lockstep {

/// From now on ATen's operators use `count` threads in the calling thread.
inline void set_intra_op_threads(int count) {
  at::get_num_threads();  // a thread that has never asked would take the process's default later on
  at::set_num_threads(count);
}

/// Puts the number of threads that ATen's operators use back when it goes, for the calling thread and as what
/// threads get that use ATen for the first time: at::set_num_threads() sets both, whichever thread calls it.
/// So whoever starts threads with a number of their own waits under this guard until they have set it.
class IntraOpThreadsGuard {
 public:
  IntraOpThreadsGuard() = default;
  /// `count` threads in the calling thread meanwhile.
  explicit IntraOpThreadsGuard(int count) { at::set_num_threads(count); }
  ~IntraOpThreadsGuard() { at::set_num_threads(before_); }
  IntraOpThreadsGuard(const IntraOpThreadsGuard&) = delete;
  IntraOpThreadsGuard& operator=(const IntraOpThreadsGuard&) = delete;

 private:
  const int before_ = at::get_num_threads();
};

}  // namespace lockstep
