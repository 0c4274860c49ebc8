#include "lockstep/tests/gpu/driver_calls.h"

#include <algorithm>
#include <array>
#include <mutex>

namespace lockstep::fake_gpu {
namespace {

struct Counted {
  std::mutex mutex;
  DriverCalls calls;
};

Counted& counted() {
  static auto* const counted = new Counted;  // tensors with static lifetime free memory after main
  return *counted;
}

}  // namespace

void count_call(int64_t DriverCalls::*count, int64_t by) {
  const std::lock_guard<std::mutex> lock(counted().mutex);
  counted().calls.*count += by;
}

void forget_driver_calls() {
  const std::lock_guard<std::mutex> lock(counted().mutex);
  counted().calls = {};
}

int64_t kernels_for_lists(size_t lists, size_t tensors) {
  if (lists == 0) return 1;
  constexpr std::array<size_t, 5> kAtOnce{110, 64, 48, 36, 30};
  const size_t at_once = kAtOnce.at(std::min(lists, kAtOnce.size()) - 1);
  return static_cast<int64_t>((tensors + at_once - 1) / at_once);
}

DriverCalls driver_calls() {
  const std::lock_guard<std::mutex> lock(counted().mutex);
  return counted().calls;
}

}  // namespace lockstep::fake_gpu
