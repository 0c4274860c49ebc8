#pragma once

#include <future>
#include <thread>
#include <utility>

#include "lockstep/runtime/devices/intra_op_threads.h"

namespace lockstep {

/// Starts a thread beside the replicas': ATen's operators use no others in it, since replicas own the cores.
/// Blocks until that is set. Throws std::system_error where the system has no thread to give.
template <typename Work>
std::thread start_background_thread(Work work) {
  const IntraOpThreadsGuard keep;
  std::promise<void> is_set;
  const auto set = is_set.get_future();
  std::thread thread([work = std::move(work), is_set = std::move(is_set)]() mutable {
    set_intra_op_threads(1);
    is_set.set_value();
    work();
  });
  set.wait();
  return thread;
}

}  // namespace lockstep
