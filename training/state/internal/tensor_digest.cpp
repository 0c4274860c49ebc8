#include "lockstep/training/state/internal/tensor_digest.h"

#include <atomic>
#include <cstdint>
#include <cstring>

#include "lockstep/runtime/devices/internal/parallel_for.h"

namespace lockstep {
namespace {

// 2^64 over the golden ratio, and a multiplier of SplitMix64 (Steele, Lea and Flood, "Fast Splittable
// Pseudorandom Number Generators", 2014).
constexpr uint64_t kGoldenRatio = 0x9E3779B97F4A7C15U;
constexpr uint64_t kMix = 0xBF58476D1CE4E5B9U;
constexpr int kShift = 29;
/// Words per task: about 30 us of work.
constexpr int64_t kGrain = 1 << 15;

/// Returns the plain numbers in one row; a complex number becomes two.
torch::Tensor flat(const torch::Tensor& tensor) {
  auto plain = tensor.detach().contiguous();
  if (plain.is_complex()) plain = torch::view_as_real(plain.resolve_conj());
  return plain.resolve_neg().contiguous().view({-1});
}

/// Returns an odd number for each place, without a pattern, so that differences with one, such as those of
/// neighbours, do not cancel. Shifts keep the sign, as ATen's do.
int64_t factor(int64_t place) {
  auto mixed = (static_cast<uint64_t>(place) + 1) * kGoldenRatio;
  mixed = (mixed ^ static_cast<uint64_t>(static_cast<int64_t>(mixed) >> kShift)) * kMix;
  return static_cast<int64_t>((mixed ^ static_cast<uint64_t>(static_cast<int64_t>(mixed) >> kShift)) | 1U);
}

/// `kExponent` has the bits that are all set in NaN and infinity; it is 0 for numbers that are always finite.
template <typename Word, uint64_t kExponent>
torch::Tensor digest_words(const torch::Tensor& numbers) {
  const auto* words = static_cast<const char*>(numbers.const_data_ptr());
  std::atomic<uint64_t> digest = 0;
  std::atomic<int64_t> not_finite = 0;
  parallel_for(0, numbers.numel(), kGrain, [&](int64_t begin, int64_t end) {
    uint64_t sum = 0;
    int64_t count = 0;
    for (int64_t place = begin; place < end; ++place) {
      Word word;
      std::memcpy(&word, words + place * static_cast<int64_t>(sizeof(Word)), sizeof(Word));
      sum += static_cast<uint64_t>(factor(place)) * static_cast<uint64_t>(static_cast<int64_t>(word));
      if constexpr (kExponent != 0) count += (static_cast<uint64_t>(word) & kExponent) == kExponent ? 1 : 0;
    }
    digest += sum;
    not_finite += count;
  });
  return torch::tensor({static_cast<int64_t>(digest.load()), not_finite.load()}, torch::kLong);
}

torch::Tensor digest_on_cpu(const torch::Tensor& numbers) {
  switch (numbers.scalar_type()) {
    case torch::kDouble:
      return digest_words<int64_t, 0x7FF0000000000000U>(numbers);
    case torch::kFloat:
      return digest_words<int32_t, 0x7F800000U>(numbers);
    case torch::kHalf:
      return digest_words<int16_t, 0x7C00U>(numbers);
    case torch::kBFloat16:
      return digest_words<int16_t, 0x7F80U>(numbers);
    default:
      break;
  }
  switch (numbers.element_size()) {
    case 8:
      return digest_words<int64_t, 0>(numbers);
    case 4:
      return digest_words<int32_t, 0>(numbers);
    case 2:
      return digest_words<int16_t, 0>(numbers);
    default:
      return digest_words<uint8_t, 0>(numbers);
  }
}

torch::ScalarType word_type(const torch::Tensor& numbers) {
  switch (numbers.element_size()) {
    case 8:
      return torch::kLong;
    case 4:
      return torch::kInt;
    case 2:
      return torch::kShort;
    default:
      return torch::kByte;
  }
}

bool may_be_infinite(const torch::Tensor& numbers) {
  return numbers.is_floating_point() && numbers.element_size() > 1;
}

}  // namespace

torch::Tensor digest_of(const torch::Tensor& tensor) {
  return tensor.is_cpu() ? digest_on_cpu(flat(tensor)) : digest_by_operators(tensor);
}

torch::Tensor digest_by_operators(const torch::Tensor& tensor) {
  const auto numbers = flat(tensor);
  const auto words = numbers.view(word_type(numbers)).to(torch::kLong);
  auto factors =
      torch::arange(1, words.numel() + 1, words.options()).mul_(static_cast<int64_t>(kGoldenRatio));
  factors = factors.bitwise_xor_(factors.bitwise_right_shift(kShift)).mul_(static_cast<int64_t>(kMix));
  factors = factors.bitwise_xor_(factors.bitwise_right_shift(kShift)).bitwise_or_(1);
  const auto not_finite = may_be_infinite(numbers) ? torch::isfinite(numbers).logical_not_().sum()
                                                   : torch::zeros({}, words.options());
  return torch::stack({factors.mul_(words).sum(), not_finite});
}

}  // namespace lockstep
