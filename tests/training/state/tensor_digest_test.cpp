#include "lockstep/training/state/internal/tensor_digest.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace lockstep {
namespace {

/// The header's formula, word by word, for elements of 4 bytes.
int64_t sum_of_products(const std::vector<uint32_t>& words) {
  uint64_t sum = 0;
  for (size_t place = 0; place < words.size(); ++place) {
    auto odd = static_cast<int64_t>((place + 1) * 0x9E3779B97F4A7C15U);
    odd = static_cast<int64_t>(static_cast<uint64_t>(odd ^ (odd >> 29)) * 0xBF58476D1CE4E5B9U);
    odd = (odd ^ (odd >> 29)) | 1;
    sum += static_cast<uint64_t>(odd) *
           static_cast<uint64_t>(static_cast<int64_t>(static_cast<int32_t>(words[place])));
  }
  return static_cast<int64_t>(sum);
}

TEST(TensorDigest, IsTheSumOfWordsTimesOddNumbers) {
  // More words than one thread's share.
  std::vector<uint32_t> words(200001);
  uint32_t next = 1;
  for (auto& word : words) word = next = next * 1664525U + 1013904223U;
  const auto tensor = torch::empty({static_cast<int64_t>(words.size())}, torch::kInt);
  std::memcpy(tensor.mutable_data_ptr(), words.data(), tensor.nbytes());
  const auto digest = digest_of(tensor);
  EXPECT_EQ(digest[0].item<int64_t>(), sum_of_products(words));
  EXPECT_EQ(digest[1].item<int64_t>(), 0);
}

TEST(TensorDigest, ByOperatorsIsTheSame) {
  torch::manual_seed(3);
  for (const auto type : {torch::kDouble, torch::kFloat, torch::kHalf, torch::kBFloat16, torch::kComplexFloat,
                          torch::kComplexDouble, torch::kLong, torch::kInt, torch::kShort, torch::kChar,
                          torch::kByte, torch::kBool, torch::kFloat8_e4m3fn}) {
    auto tensor = torch::randn({17, 4099}, torch::kDouble).mul(50).to(type);
    if (torch::isFloatingType(type) && torch::elementSize(type) > 1) {
      tensor[3][5] = NAN;
      tensor[16][4098] = INFINITY;
    }
    for (const auto& seen : {tensor, tensor.t(), tensor.slice(1, 1, 4000, 3)})
      EXPECT_TRUE(torch::equal(digest_of(seen), digest_by_operators(seen))) << c10::toString(type);
  }
}

TEST(TensorDigest, CountsWhatIsNotFinite) {
  for (const auto type : {torch::kDouble, torch::kFloat, torch::kHalf, torch::kBFloat16}) {
    auto tensor = torch::full({10}, 3.0, type);
    EXPECT_EQ(digest_of(tensor)[1].item<int64_t>(), 0);
    tensor[0] = -INFINITY;
    tensor[7] = NAN;
    EXPECT_EQ(digest_of(tensor)[1].item<int64_t>(), 2) << c10::toString(type);
  }
  EXPECT_EQ(digest_of(torch::tensor(
                {std::numeric_limits<float>::max(), std::numeric_limits<float>::denorm_min()}))[1]
                .item<int64_t>(),
            0);
}

TEST(TensorDigest, OfNothingIsZero) {
  EXPECT_TRUE(torch::equal(digest_of(torch::empty({0})), torch::zeros({2}, torch::kLong)));
}

}  // namespace
}  // namespace lockstep
