#include "lockstep/strategies/parallel/internal/pass_batches.h"

#include <c10/util/StringUtil.h>

#include <utility>

namespace lockstep {

PassBatches::PassBatches(std::vector<torch::Tensor> inputs, const std::vector<int>& counts,
                         torch::Tensor target, std::optional<int64_t> first_number)
    : inputs_(std::move(inputs)), target_(std::move(target)), first_number_(first_number) {
  for (size_t batch = 0; batch < inputs_.size(); ++batch) {
    const int64_t size = inputs_[batch].size(0);
    for (int number = 0; number < counts[batch]; ++number) {
      const int64_t begin = size * number / counts[batch];
      places_.push_back({batch, number, begin, size * (number + 1) / counts[batch] - begin});
    }
  }
}

bool PassBatches::ends_batch(int micro_batch) const {
  return micro_batch + 1 == num_micro_batches() || batch_of(micro_batch + 1) != batch_of(micro_batch);
}

torch::Tensor PassBatches::input(int micro_batch) const {
  const auto& own = place(micro_batch);
  return inputs_[own.batch].narrow(0, own.begin, own.length);
}

torch::Tensor PassBatches::target(int micro_batch) const {
  const auto& own = place(micro_batch);
  return target_.defined() ? target_.narrow(0, own.begin, own.length) : torch::Tensor();
}

std::string PassBatches::describe(int micro_batch) const {
  const auto& own = place(micro_batch);
  const std::string name = c10::str("micro-batch ", own.number);
  return first_number_ ? c10::str(name, " of batch ", *first_number_ + static_cast<int64_t>(own.batch))
                       : name;
}

}  // namespace lockstep
