#include "lockstep/datasets/images/generated_digits.h"

#include <torch/data/example.h>
#include <torch/types.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "lockstep/datasets/images/internal/digit_drawing.h"
#include "lockstep/datasets/tensors/collated_dataset.h"
#include "lockstep/datasets/tensors/tensor_dataset.h"

namespace lockstep {

static_assert(CollatedDataset<GeneratedDigits>);

namespace {

constexpr size_t kNumClasses = 10;

}  // namespace

GeneratedDigits::GeneratedDigits(const GeneratedDigitsOptions& options)
    : count_(static_cast<size_t>(options.count)), seed_(options.seed), transform_(make_transform(options)) {
  if (options.count < 1) {
    throw std::invalid_argument("[GeneratedDigits] count: expected at least 1, but got " +
                                std::to_string(options.count));
  }
}

torch::data::Example<> GeneratedDigits::get_batch(c10::ArrayRef<size_t> indices) const {
  check_indices(indices, count_, "GeneratedDigits");
  const auto count = static_cast<int64_t>(indices.size());
  at::Tensor data = torch::empty({count, 1, kDigitSize, kDigitSize}, torch::kByte);
  at::Tensor target = torch::empty({count}, torch::kLong);
  auto* pixels = data.mutable_data_ptr<uint8_t>();
  auto* label = target.mutable_data_ptr<int64_t>();
  for (const size_t index : indices) {
    const auto digit = static_cast<int64_t>(index % kNumClasses);
    const DigitImage image = draw_digit(digit, seed_, index);
    pixels = std::copy(image.begin(), image.end(), pixels);
    *label++ = digit;
  }
  return {data, target};
}

torch::data::Example<> GeneratedDigits::device_transform(torch::data::Example<> batch) const {
  return {transform_(batch.data), std::move(batch.target)};
}

}  // namespace lockstep
