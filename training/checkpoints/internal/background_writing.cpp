#include "lockstep/training/checkpoints/internal/background_writing.h"

#include <cstring>
#include <latch>
#include <utility>

#include "lockstep/runtime/devices/intra_op_threads.h"

namespace lockstep {
namespace {

/// Copies in one thread: OpenMP's threads, which an operator would use, spin afterwards and keep the replicas
/// from the cores.
torch::Tensor copy_of(const torch::Tensor& tensor) {
  if (tensor.is_meta()) return tensor;
  const auto plain = tensor.detach();
  const bool is_plain = plain.is_cpu() && plain.layout() == torch::kStrided &&
                        plain.is_non_overlapping_and_dense() && !plain.is_conj() && !plain.is_neg();
  if (!is_plain) return plain.to(torch::kCPU, false, true);
  auto copy = torch::empty_like(plain);
  if (plain.nbytes() > 0) std::memcpy(copy.mutable_data_ptr(), plain.const_data_ptr(), plain.nbytes());
  return copy;
}

}  // namespace

StateValue::Dict host_copy(const StateValue::Dict& state) {
  const torch::NoGradGuard no_grad;
  const StateValue copied = map_tensors<torch::Tensor>(
      StateValue(state), [](const torch::Tensor& tensor) { return copy_of(tensor); });
  return *copied.get_if<StateValue::Dict>();
}

std::future<void> in_background(std::function<void()> work) {
  const IntraOpThreadsGuard keep;
  std::latch has_set(1);
  auto done = std::async(std::launch::async, [work = std::move(work), &has_set] {
    set_intra_op_threads(1);
    has_set.count_down();
    work();
  });
  has_set.wait();
  return done;
}

}  // namespace lockstep
