#include "lockstep/runtime/gradients/gradient_buckets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

namespace lockstep {
namespace {

using Parameters = std::vector<at::Tensor>;

at::Tensor trained(at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat) {
  return torch::ones(sizes, dtype).requires_grad_();
}

GradientBuckets laid_out(const Parameters& parameters, const std::vector<size_t>& order,
                         const BucketOptions& options = {}) {
  GradientBuckets buckets;
  buckets.lay_out(parameters, order, options);
  return buckets;
}

/// Parameters of up to three dimensions and two dtypes; one in five is frozen.
Parameters random_parameters(std::mt19937& random) {
  Parameters parameters;
  const size_t count = 1 + random() % 20;
  for (size_t i = 0; i < count; ++i) {
    std::vector<int64_t> sizes(random() % 4);
    for (auto& size : sizes) size = 1 + static_cast<int64_t>(random() % 5);
    auto parameter = trained(sizes, random() % 2 == 0 ? at::kFloat : at::kDouble);
    parameters.push_back(parameter.requires_grad_(random() % 5 != 0));
  }
  return parameters;
}

TEST(GradientBuckets, SlotsBeginAtMultiplesOfTheAlignmentWithZerosBetween) {
  const Parameters parameters{trained({1}), trained({5}), trained({3}, at::kDouble), trained({4}),
                              trained({1}, at::kDouble)};
  GradientBuckets buckets;
  buckets.lay_out(parameters, {0, 1, 2, 3, 4}, {}, /*alignment=*/16);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& slot = buckets.slot(i);
    EXPECT_EQ(slot.storage_offset() * static_cast<int64_t>(slot.element_size()) % 16, 0) << i;
    at::Tensor(slot).fill_(1);
  }
  for (size_t bucket = 0; bucket < buckets.size(); ++bucket) {
    const auto& flat = buckets.flat(bucket);
    const bool is_double = flat.scalar_type() == at::kDouble;
    // 1 + 5 + 4 floats in units of 4; 3 + 1 doubles in units of 2.
    EXPECT_EQ(flat.numel(), is_double ? 4 + 2 : 4 + 8 + 4);
    EXPECT_EQ(flat.sum().item<double>(), is_double ? 4 : 10);
  }
}

TEST(GradientBuckets, AreRoundedForTransportAndTakenBackWhereTheyAreLonger) {
  const Parameters parameters{trained({2}), trained({2}, at::kDouble), trained({2}, at::kHalf)};
  GradientBuckets buckets;
  buckets.lay_out(parameters, {0, 1, 2}, {}, /*alignment=*/1, at::kBFloat16);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const size_t bucket = buckets.bucket_of(i);
    at::Tensor slot = buckets.slot(i);
    slot.fill_(1 + 1.0 / 256);  // half a unit of bfloat16's last place at 1: rounded to the even neighbour
    buckets.round(bucket);
    at::Tensor sent = buckets.sent(bucket);
    if (i == 2) {
      EXPECT_TRUE(sent.is_same(buckets.flat(bucket)));
    } else {
      EXPECT_EQ(sent.scalar_type(), at::kBFloat16);
      EXPECT_EQ(sent[1].item<double>(), 1);
    }
    sent.add_(sent);
    buckets.take_back(bucket);
    EXPECT_EQ(slot[1].item<double>(), i == 2 ? 2 + 1.0 / 128 : 2);
    EXPECT_EQ(slot.scalar_type(), parameters[i].scalar_type());
  }
}

TEST(GradientBuckets, HaveEveryElementOfATrainedParameterOnceAndNoneOfAFrozenOne) {
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    SCOPED_TRACE(round);
    const Parameters parameters = random_parameters(random);
    std::vector<size_t> order(parameters.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::shuffle(order.begin(), order.end(), random);
    const GradientBuckets buckets =
        laid_out(parameters, order, {.first_bucket_bytes = 64, .bucket_bytes = 256});
    ASSERT_EQ(buckets.num_parameters(), parameters.size());

    // Each slot is filled with its own number: if two overlapped, one would read the other's.
    std::vector<size_t> slots_of(buckets.size());
    std::map<double, int64_t> expected;
    for (const size_t i : order) {
      ASSERT_EQ(buckets.has_slot(i), parameters[i].requires_grad());
      if (!buckets.has_slot(i)) continue;
      const at::Tensor& slot = buckets.slot(i);
      EXPECT_TRUE(slot.eq(0).all().item<bool>());
      EXPECT_EQ(slot.sizes(), parameters[i].sizes());
      EXPECT_EQ(slot.scalar_type(), parameters[i].scalar_type());
      ASSERT_LT(buckets.bucket_of(i), buckets.size());
      EXPECT_TRUE(slot.is_alias_of(buckets.flat(buckets.bucket_of(i))));
      ++slots_of[buckets.bucket_of(i)];
      slot.fill_(static_cast<double>(i + 1));
      expected[static_cast<double>(i + 1)] = parameters[i].numel();
    }
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (!buckets.has_slot(i)) continue;
      EXPECT_TRUE(buckets.slot(i).eq(static_cast<double>(i + 1)).all().item<bool>());
    }
    std::map<double, int64_t> found;
    for (size_t bucket = 0; bucket < buckets.size(); ++bucket) {
      EXPECT_EQ(buckets.members(bucket).size(), slots_of[bucket]);
      const at::Tensor values = buckets.flat(bucket).to(at::kDouble);
      for (int64_t i = 0; i < values.numel(); ++i) ++found[values[i].item<double>()];
    }
    EXPECT_EQ(found, expected);
  }
}

TEST(GradientBuckets, AreClosedOnceTheyReachTheirBytes) {
  const Parameters parameters(5, trained({4}));  // 16 bytes each
  const GradientBuckets buckets =
      laid_out(parameters, {3, 1, 4, 0, 2}, {.first_bucket_bytes = 16, .bucket_bytes = 40});
  ASSERT_EQ(buckets.size(), 3U);
  EXPECT_EQ(buckets.bucket_of(3), 0U);
  for (const size_t i : {1U, 4U, 0U}) EXPECT_EQ(buckets.bucket_of(i), 1U);
  EXPECT_EQ(buckets.bucket_of(2), 2U);
  EXPECT_EQ(buckets.flat(0).numel(), 4);
  EXPECT_EQ(buckets.flat(1).numel(), 12);
  EXPECT_EQ(buckets.flat(2).numel(), 4);
  // One after another, in the order given.
  EXPECT_EQ(buckets.slot(1).storage_offset(), 0);
  EXPECT_EQ(buckets.slot(4).storage_offset(), 4);
  EXPECT_EQ(buckets.slot(0).storage_offset(), 8);
}

TEST(GradientBuckets, KeepDtypesApart) {
  const GradientBuckets buckets = laid_out(
      {trained({2}), trained({3}, at::kDouble), trained({4}), trained({5}, at::kDouble)}, {3, 2, 1, 0});
  ASSERT_EQ(buckets.size(), 2U);
  EXPECT_EQ(buckets.bucket_of(1), buckets.bucket_of(3));
  EXPECT_EQ(buckets.bucket_of(0), buckets.bucket_of(2));
  EXPECT_EQ(buckets.flat(buckets.bucket_of(1)).scalar_type(), at::kDouble);
  EXPECT_EQ(buckets.flat(buckets.bucket_of(0)).scalar_type(), at::kFloat);
}

TEST(GradientBuckets, GiveDenseParametersTheirStridesAndOthersARowAfterAnother) {
  const at::Tensor channels_last =
      torch::ones({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast).requires_grad_();
  const at::Tensor with_gaps = torch::ones({4, 6}).slice(1, 0, 2).requires_grad_();
  const GradientBuckets buckets = laid_out({channels_last, with_gaps}, {1, 0});
  EXPECT_EQ(buckets.slot(0).strides(), (std::vector<int64_t>{60, 1, 15, 3}));
  EXPECT_EQ(buckets.slot(1).strides(), (std::vector<int64_t>{2, 1}));
}

TEST(GradientBuckets, GiveSlotsThatAutogradTakesForTensorsOfTheirOwn) {
  const Parameters parameters{trained({2}), trained({3})};
  const GradientBuckets buckets = laid_out(parameters, {1, 0});
  EXPECT_FALSE(buckets.slot(0).is_view());
  EXPECT_FALSE(buckets.slot(0).requires_grad());
  for (size_t i = 0; i < 2; ++i) parameters[i].mutable_grad() = buckets.slot(i);
  ((parameters[0] * 2).sum() + (parameters[1] * 3).sum()).backward();
  EXPECT_TRUE(buckets.flat(0).slice(0, 0, 5).equal(torch::tensor({3.F, 3.F, 3.F, 2.F, 2.F})));
}

TEST(GradientBuckets, AreNoneWhereNothingIsTrained) {
  const GradientBuckets buckets = laid_out({torch::ones({2})}, {0});
  EXPECT_EQ(buckets.size(), 0U);
  EXPECT_FALSE(buckets.has_slot(0));
  EXPECT_TRUE(buckets.fit({torch::ones({2})}));
}

TEST(GradientBuckets, FitUntilAParameterIsOfAnotherKind) {
  const Parameters parameters{trained({2, 3}), torch::ones({4})};
  GradientBuckets buckets = laid_out(parameters, {1, 0});
  EXPECT_TRUE(buckets.fit(parameters));
  EXPECT_TRUE(buckets.fit({torch::zeros({2, 3}).requires_grad_(), torch::zeros({4})})) << "other values";
  const std::vector<std::pair<std::string, at::Tensor>> changes{
      {"dtype", trained({2, 3}, at::kDouble)},
      {"device", torch::ones({2, 3}, at::kMeta).requires_grad_()},
      {"shape", trained({3, 2})},
      {"strides", torch::ones({3, 2}).t().requires_grad_()},
      {"requires_grad", torch::ones({2, 3})}};
  for (const auto& [what, changed] : changes) EXPECT_FALSE(buckets.fit({changed, parameters[1]})) << what;

  const Parameters thawed{parameters[0], trained({4})};
  EXPECT_FALSE(buckets.fit(thawed));
  buckets.lay_out(thawed, {1, 0}, {});
  EXPECT_TRUE(buckets.fit(thawed));
  EXPECT_TRUE(buckets.has_slot(1));
  EXPECT_FALSE(buckets.fit(parameters));
}

TEST(GradientBuckets, HoldTheGradientsThatLieInThem) {
  const Parameters parameters{trained({2}), trained({2})};
  const GradientBuckets buckets = laid_out(parameters, {1, 0}, {.first_bucket_bytes = 1, .bucket_bytes = 1});
  ASSERT_EQ(buckets.size(), 2U);
  EXPECT_TRUE(buckets.holds(0, buckets.slot(0)));
  EXPECT_TRUE(buckets.holds(0, buckets.slot(0).detach()));
  EXPECT_FALSE(buckets.holds(0, buckets.slot(1))) << "in another bucket";
  EXPECT_FALSE(buckets.holds(0, buckets.slot(0).clone()));
  EXPECT_FALSE(buckets.holds(0, at::Tensor()));
  EXPECT_FALSE(buckets.holds(0, torch::ones({2}).to_sparse()));
}

TEST(GradientBuckets, LeaveTheirMemoryToTheGradientsThatLieInItWhenLaidOutAnew) {
  const Parameters parameters{trained({2}), trained({3})};
  GradientBuckets buckets = laid_out(parameters, {1, 0});
  const at::Tensor gradient = buckets.slot(0);
  gradient.fill_(5);
  buckets.lay_out(parameters, {0, 1}, {});
  EXPECT_TRUE(gradient.eq(5).all().item<bool>());
  EXPECT_FALSE(buckets.holds(0, gradient));
  EXPECT_TRUE(buckets.flat(0).eq(0).all().item<bool>());
  EXPECT_EQ(buckets.slot(0).storage_offset(), 0);
  EXPECT_EQ(buckets.slot(1).storage_offset(), 2);
}

}  // namespace
}  // namespace lockstep
